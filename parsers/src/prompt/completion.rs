//! Prompts of plain completions, and prompts that the engine cuts before it reads them.
//!
//! A completion may bring texts, tokens, or several of either; engines answer several one by one, so the longest is what must fit. What
//! is a mixture, or comes as vectors, has no count here. Must never call a number exact that the vocabulary did not count.

use super::count::TokenCount;
use super::counter::PromptCounter;
use super::normalise::Normalisation;
use super::stop::Stop;
use crate::json::Value;
use crate::request::ChatRequest;

impl PromptCounter {
    /// How many tokens a plain prompt has, as completions take it: with what the tokenizer puts around a text.
    pub fn count_text(&self, text: &str) -> u64 {
        self.count_plain(text, Normalisation::Vllm, true).high()
    }

    /// How many tokens the `prompt` of a completion has on an engine: a text, or the tokens themselves. Of several prompts in one
    /// request it is the longest. `None`: there is none, or none that is text or tokens.
    pub fn count_completion(
        &self,
        request: &ChatRequest,
        normalisation: Normalisation,
    ) -> Option<TokenCount> {
        let root = request.root();
        let is_set = |name: &str| root.get(name).is_some_and(|value| !value.is_null());
        if is_set("prompt_embeds") {
            return None;
        }
        let adds = root.get("add_special_tokens").and_then(|value| value.as_bool()).unwrap_or(true);
        let framed = adds || normalisation == Normalisation::LlamaCpp;
        let prompt = root.get("prompt")?;
        let count = match tokens(prompt) {
            Some(count) => count,
            None => {
                let texts = prompt.as_str().map_or_else(|| prompt.elements().collect(), |_| vec![prompt]);
                let counts = texts.into_iter().map(|one| match one.as_str() {
                    Some(text) => Some(self.count_plain(&text, normalisation, framed)),
                    None => tokens(one),
                });
                longest(counts)?
            }
        };
        Some(cut(request, normalisation, count))
    }

    /// A text that the vocabulary gives up on, or that the engine reads otherwise, has no more tokens than bytes, and a blank at the front.
    fn count_plain(&self, text: &str, normalisation: Normalisation, framed: bool) -> TokenCount {
        let around = if framed { self.vocabulary.around() } else { 0 };
        let nfc = self.nfc && normalisation == Normalisation::Vllm;
        match self.vocabulary.count(text, nfc, &Stop::default()) {
            Ok(counted) if !(self.vocabulary.is_rebuilt && normalisation == Normalisation::Vllm) => {
                TokenCount::Exact(counted.tokens + around)
            }
            _ => TokenCount::Between { low: around, high: text.len() as u64 + 1 + around },
        }
    }
}

/// The length of a list of tokens.
fn tokens(prompt: Value<'_>) -> Option<TokenCount> {
    let count = prompt.elements().count();
    let all = count > 0 && prompt.elements().all(|one| one.as_u64().is_some());
    all.then_some(TokenCount::Exact(count as u64))
}

/// The longest of several; none if one of them is not known.
fn longest(counts: impl Iterator<Item = Option<TokenCount>>) -> Option<TokenCount> {
    counts.reduce(|one, other| {
        let (one, other) = (one?, other?);
        let (low, high) = (one.low().max(other.low()), one.high().max(other.high()));
        Some(match low == high {
            true => TokenCount::Exact(low),
            false => TokenCount::Between { low, high },
        })
    })?
}

/// What is left of a prompt where vLLM is told to cut it (`truncate_prompt_tokens`; -1 is its own limit, which is not known here).
pub(super) fn cut(request: &ChatRequest, normalisation: Normalisation, count: TokenCount) -> TokenCount {
    let most = request.root().get("truncate_prompt_tokens").filter(|most| !most.is_null());
    let Some(most) = most.filter(|_| normalisation == Normalisation::Vllm) else { return count };
    match most.as_u64().filter(|most| *most > 0) {
        Some(most) if count.is_exact() || count.low() >= most => TokenCount::Exact(count.low().min(most)),
        Some(most) => TokenCount::Between { low: count.low(), high: count.high().min(most) },
        None => TokenCount::Between { low: 0, high: count.high() },
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::json;

    use super::{Normalisation, TokenCount, cut, longest, tokens};
    use crate::request::ChatRequest;

    fn request(body: serde_json::Value) -> ChatRequest {
        ChatRequest::parse(Bytes::from(body.to_string())).unwrap()
    }

    #[test]
    fn a_prompt_that_is_cut_has_what_is_left_of_it() {
        let between = TokenCount::Between { low: 10, high: 90 };
        for (most, count, expected) in [
            (json!(5), TokenCount::Exact(8), TokenCount::Exact(5)),
            (json!(9), TokenCount::Exact(8), TokenCount::Exact(8)),
            (json!(50), between, TokenCount::Between { low: 10, high: 50 }),
            (json!(5), between, TokenCount::Exact(5)),
            (json!(-1), TokenCount::Exact(8), TokenCount::Between { low: 0, high: 8 }),
            (json!("5"), TokenCount::Exact(8), TokenCount::Between { low: 0, high: 8 }),
            (json!(null), TokenCount::Exact(8), TokenCount::Exact(8)),
        ] {
            let request = request(json!({"messages": [], "truncate_prompt_tokens": most}));
            assert_eq!(cut(&request, Normalisation::Vllm, count), expected, "{most}");
            assert_eq!(cut(&request, Normalisation::LlamaCpp, count), count, "{most}");
        }
    }

    #[test]
    fn the_longest_of_several_prompts_counts_if_all_are_known() {
        let exact = |count| Some(TokenCount::Exact(count));
        assert_eq!(longest([exact(3), exact(7), exact(5)].into_iter()), exact(7));
        assert_eq!(longest([exact(3), None].into_iter()), None);
        let open = Some(TokenCount::Between { low: 4, high: 6 });
        assert_eq!(longest([exact(5), open].into_iter()), Some(TokenCount::Between { low: 5, high: 6 }));
        assert_eq!(longest([].into_iter()), None);
        let of = |prompt| tokens(request(json!({"prompt": prompt})).root().get("prompt").unwrap());
        assert_eq!(of(json!([1, 2, 3])), exact(3));
        for other in [json!([]), json!(["a", 1]), json!([1, "a"]), json!([[1]]), json!("a"), json!([-1])] {
            assert_eq!(of(other.clone()), None, "{other}");
        }
    }
}
