//! One prompt kind: a template and a vocabulary, read from a model's files, that render and count requests.
//!
//! A counter is shared by all threads. Counting is pure work, some milliseconds for a long conversation: it belongs on a thread that
//! may block. It must never answer [`TokenCount::Exact`] where a part of the prompt is not known to it.

use serde_json::{Map, Value as Json};

use super::PER_IMAGE;
use super::count::TokenCount;
use super::harmony::{self, Piece};
use super::images::{ImageRule, images};
use super::normalise::{self, Ending, Normalisation, Prepared, Refused, llama_cpp, vllm};
use super::probe::Traits;
use super::stop::Stop;
use super::template::{RenderError, Template};
use super::unsure::{is_unsure, wide_integers};
use super::vocabulary::Vocabulary;
use crate::request::ChatRequest;

/// Tokens by which a printed date may differ from the one that stands in the count.
const DATE_ALLOWANCE: u64 = 8;
/// Tokens that stand around an image: its begin, its end, line breaks.
const AROUND_IMAGE: u64 = 6;

/// Renders and counts the prompts of one model.
pub struct PromptCounter {
    pub(super) name: String,
    pub(super) vocabulary: Vocabulary,
    /// Whether a plain text is normalised to NFC: as the file's own tokenizer does.
    pub(super) nfc: bool,
    /// The special tokens that templates get as variables.
    pub(super) special: Map<String, Json>,
    pub(super) chat: Option<Chat>,
    /// A gpt-oss: vLLM renders its prompts without a template.
    pub(super) harmony: bool,
    /// What an image becomes, if that is known.
    pub(super) images: Option<ImageRule>,
}

/// The templates of a model, for both engines.
pub(super) struct Chat {
    pub(super) bytes: usize,
    pub(super) vllm: Templates,
    pub(super) llama_cpp: Templates,
}

/// The templates of a model, in one engine's dialect.
pub(super) struct Templates {
    pub(super) plain: Probed,
    /// Some models bring another template for requests with tools.
    pub(super) with_tools: Option<Probed>,
}

/// A template, and what it can do.
pub(super) struct Probed {
    pub(super) template: Template,
    pub(super) traits: Traits,
}

/// Why a request has no count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CountError {
    /// The model has no chat template, so it has no chat.
    #[error("the model has no chat template")]
    NoTemplate,
    /// The engine would refuse the request before rendering it.
    #[error("the engine refuses this request: {0}")]
    Refused(String),
    /// The template refuses the request in its own words; the engine passes them on with a 400.
    #[error("the chat template refuses this request: {0}")]
    Raised(String),
    /// The template or the vocabulary failed on this request.
    #[error("the prompt cannot be counted: {0}")]
    Failed(String),
}

impl From<Refused> for CountError {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused.0)
    }
}

impl From<RenderError> for CountError {
    fn from(error: RenderError) -> Self {
        match error {
            RenderError::Raised(message) => Self::Raised(message),
            RenderError::Failed(reason) => Self::Failed(reason),
        }
    }
}

impl std::fmt::Debug for PromptCounter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PromptCounter({})", self.describe())
    }
}

impl PromptCounter {
    /// What was read, for people: `smollm2.gguf: bpe, 49152 tokens, template of 512 bytes`.
    pub fn describe(&self) -> String {
        let (model, size) = (self.vocabulary.model(), self.vocabulary.size());
        match &self.chat {
            _ if self.harmony => format!("{}: {model}, {size} tokens, Harmony", self.name),
            Some(chat) => format!("{}: {model}, {size} tokens, template of {} bytes", self.name, chat.bytes),
            None => format!("{}: {model}, {size} tokens, no template", self.name),
        }
    }

    /// How many tokens the chat `request` has as a prompt on an engine.
    ///
    /// Exact for text. An image adds what the model's rule makes of its size, with a few tokens open for what stands around it; one behind
    /// a link, one of a model whose rule is not known, and a sound, video or file add up to [`PER_IMAGE`] or the rule's most.
    /// A template that prints the date leaves a few tokens open, since this crate knows no clock.
    ///
    /// # Errors
    /// What the engine or the template would refuse, or that there is no template.
    pub fn count_chat(
        &self,
        request: &ChatRequest,
        normalisation: Normalisation,
    ) -> Result<TokenCount, CountError> {
        self.count_chat_until(request, normalisation, &Stop::default())
    }

    /// As [`Self::count_chat`], but `stop` may end it early: bounds where its limit was passed.
    ///
    /// # Errors
    /// As [`Self::count_chat`], and when it was cancelled.
    pub fn count_chat_until(
        &self,
        request: &ChatRequest,
        normalisation: Normalisation,
        stop: &Stop,
    ) -> Result<TokenCount, CountError> {
        if self.harmony && normalisation == Normalisation::Vllm {
            return self.count_harmony(request, stop);
        }
        let prompt = self.render(request, normalisation)?;
        let counted = self.vocabulary.count(&prompt.text, normalisation == Normalisation::Vllm, stop);
        let counted = counted.map_err(CountError::Failed)?;
        let around = match normalisation {
            // vLLM leaves it to the template, unless it is asked.
            Normalisation::Vllm => {
                match request.root().get("add_special_tokens").and_then(|value| value.as_bool()) {
                    Some(true) => self.vocabulary.around(),
                    _ => 0,
                }
            }
            Normalisation::LlamaCpp => self.vocabulary.around(),
        };
        let count = counted.tokens + around;
        if prompt.unsure || is_unsure(request) {
            let rough = super::bounds::bounds(request);
            return Ok(TokenCount::Between {
                low: rough.low().min(count),
                high: rough.high().max(count * 3),
            });
        }
        let date = if prompt.dated { DATE_ALLOWANCE } else { 0 } + wide_integers(request) as u64;
        let (least, most) = self.media(request, normalisation, prompt.media);
        let low = count.saturating_sub(date).saturating_add(least);
        let high = count.saturating_add(date).saturating_add(counted.rest).saturating_add(most);
        Ok(if low == high { TokenCount::Exact(low) } else { TokenCount::Between { low, high } })
    }

    fn count_harmony(&self, request: &ChatRequest, stop: &Stop) -> Result<TokenCount, CountError> {
        let (mut count, mut rest) = (0, 0);
        for piece in harmony::render(request)? {
            match piece {
                Piece::Mark(_) => count += 1,
                Piece::Text(text) if stop.is_passed_by(count) => rest += text.len() as u64,
                Piece::Text(text) => {
                    let counted = self.vocabulary.count_ordinary(&text, stop).map_err(CountError::Failed)?;
                    count += counted.tokens;
                    rest += counted.rest;
                }
            }
        }
        Ok(if rest == 0 {
            TokenCount::Exact(count)
        } else {
            TokenCount::Between { low: count, high: count + rest }
        })
    }

    /// The least and the most that so many parts which are no text add to the prompt.
    fn media(&self, request: &ChatRequest, normalisation: Normalisation, parts: u64) -> (u64, u64) {
        if parts == 0 {
            return (0, 0);
        }
        let images = images(request);
        let others = parts.saturating_sub(images.len() as u64);
        let (mut least, mut most) = (0, others.saturating_mul(PER_IMAGE));
        for image in images {
            match (self.images, image.size) {
                // llama.cpp has limits of its own.
                (Some(rule), Some(size)) if normalisation == Normalisation::Vllm => {
                    let tokens = rule.tokens(size);
                    // One token of it may stand in the text already.
                    least += tokens.saturating_sub(1);
                    most += tokens + AROUND_IMAGE;
                }
                (Some(rule), None) if normalisation == Normalisation::Vllm => {
                    most += rule.most() + AROUND_IMAGE
                }
                _ => most += PER_IMAGE,
            }
        }
        (least, most)
    }

    /// What an image of a size becomes, in tokens; none for a model whose rule is not known.
    pub fn image_rule(&self) -> Option<ImageRule> {
        self.images
    }

    /// How many tokens a plain prompt has, as completions take it: with what the tokenizer puts around a text.
    pub fn count_text(&self, text: &str) -> u64 {
        // A text that the vocabulary gives up on has no more tokens than bytes.
        let counted = self.vocabulary.count(text, self.nfc, &Stop::default());
        counted.map_or(text.len() as u64, |counted| counted.tokens) + self.vocabulary.around()
    }

    /// How many tokens the `prompt` of a completion has: a text, or the tokens themselves. Of several prompts in one request,
    /// which engines answer one by one, it is the longest. `None`: there is none.
    pub fn count_completion(&self, request: &ChatRequest) -> Option<u64> {
        let prompt = request.root().get("prompt")?;
        if let Some(text) = prompt.as_str() {
            return Some(self.count_text(&text));
        }
        let all: Vec<_> = prompt.elements().collect();
        if all.iter().any(|one| one.as_u64().is_some()) {
            return Some(all.len() as u64);
        }
        let longest = all.into_iter().filter_map(|one| match one.as_str() {
            Some(text) => Some(self.count_text(&text)),
            None => Some(one.elements().count() as u64).filter(|tokens| *tokens > 0),
        });
        longest.max()
    }

    /// The prompt that the engine would make of the chat `request`, without what tokenising adds. Places of images are left out.
    ///
    /// # Errors
    /// As [`Self::count_chat`].
    pub fn render_chat(
        &self,
        request: &ChatRequest,
        normalisation: Normalisation,
    ) -> Result<String, CountError> {
        if self.harmony && normalisation == Normalisation::Vllm {
            let text = |piece| match piece {
                Piece::Mark(mark) => mark.to_owned(),
                Piece::Text(text) => text,
            };
            return Ok(harmony::render(request)?.into_iter().map(text).collect());
        }
        Ok(self.render(request, normalisation)?.text)
    }

    fn render(&self, request: &ChatRequest, normalisation: Normalisation) -> Result<Prompt, CountError> {
        let chat = self.chat.as_ref().ok_or(CountError::NoTemplate)?;
        let templates = match normalisation {
            Normalisation::Vllm => &chat.vllm,
            Normalisation::LlamaCpp => &chat.llama_cpp,
        };
        let has_tools = request.tools().next().is_some();
        let probed = templates.with_tools.as_ref().filter(|_| has_tools).unwrap_or(&templates.plain);
        let prepared = match normalisation {
            Normalisation::Vllm => vllm::prepare(request, &probed.traits)?,
            Normalisation::LlamaCpp => llama_cpp::prepare(request, &probed.traits)?,
        };
        let rendering =
            Rendering { probed, special: self.special(normalisation), size: request.body().len() };
        let mut prompt = rendering.render(prepared)?;
        prompt.dated |= normalisation == Normalisation::LlamaCpp && probed.traits.names_date;
        if normalisation == Normalisation::LlamaCpp && self.vocabulary.around() > 0 {
            // llama.cpp adds BOS itself, so it takes the template's away.
            let bos = self.special.get("bos_token").and_then(Json::as_str).unwrap_or_default();
            if let Some(rest) = prompt.text.strip_prefix(bos) {
                prompt.text = rest.to_owned();
            }
        }
        Ok(prompt)
    }

    /// The special tokens that a template gets as variables.
    fn special(&self, normalisation: Normalisation) -> Map<String, Json> {
        match normalisation {
            Normalisation::Vllm => self.special.clone(),
            Normalisation::LlamaCpp => ["bos_token", "eos_token"]
                .iter()
                .map(|name| {
                    ((*name).to_owned(), self.special.get(*name).cloned().unwrap_or_else(|| "".into()))
                })
                .collect(),
        }
    }
}

/// A rendered prompt.
struct Prompt {
    text: String,
    media: u64,
    dated: bool,
    /// The engine may have another text.
    unsure: bool,
}

/// A template with what every render of one request has in common.
struct Rendering<'a> {
    probed: &'a Probed,
    special: Map<String, Json>,
    size: usize,
}

impl Rendering<'_> {
    fn render(&self, prepared: Prepared) -> Result<Prompt, CountError> {
        let Prepared { context, ending, media, unsure } = prepared;
        let context: Map<String, Json> = self.special.clone().into_iter().chain(context).collect();
        let rendered = self.probed.template.render(normalise::to_value(&context), self.size)?;
        let (text, dated) = (rendered.text, rendered.dated);
        let text = match ending {
            Ending::Rendered | Ending::LeftOut => text,
            Ending::CutAtMark { said } => cut_at_mark(&text, &said)?,
            Ending::Continued { reasoning, content } => {
                text + &self.reopened(context, &reasoning, content.as_deref())?
            }
        };
        Ok(Prompt { text, media, dated, unsure: unsure || self.probed.template.is_unsure() })
    }

    /// The assistant's turn, opened again by llama.cpp with what it had thought and said.
    fn reopened(
        &self,
        mut context: Map<String, Json>,
        reasoning: &str,
        content: Option<&str>,
    ) -> Result<String, CountError> {
        let reopening = &self.probed.traits.reopening;
        let mut turn = match reopening.opening {
            Some(opening) => opening.to_owned(),
            None => {
                let without = self.probed.template.render(normalise::to_value(&context), self.size)?.text;
                context.insert("add_generation_prompt".into(), true.into());
                let with = self.probed.template.render(normalise::to_value(&context), self.size)?.text;
                let same = with.char_indices().zip(without.chars()).find(|((_, a), b)| a != b);
                let common = same.map_or(with.len().min(without.len()), |((at, _), _)| at);
                with.get(common..).unwrap_or_default().to_owned()
            }
        };
        if let Some((before, behind)) = &reopening.around_reasoning {
            if let Some(at) = turn.find(before.as_str()) {
                turn.truncate(at);
            }
            turn.push_str(before);
            turn.push_str(reasoning);
            if content.is_some() {
                turn.push_str(behind);
            }
        }
        turn.push_str(content.unwrap_or_default());
        Ok(turn)
    }
}

/// The prompt up to where the last message's text ended, as transformers cuts it.
fn cut_at_mark(text: &str, said: &str) -> Result<String, CountError> {
    let bare = vllm::MARK.trim_end();
    let Some(at) = text.rfind(bare).filter(|_| text.contains(said.trim())) else {
        return Err(CountError::Refused(
            "the template does not print the final message that is to be continued".into(),
        ));
    };
    let kept = &text[..at];
    // Where the template trimmed the text, the blank behind the mark is gone, and with it what was trimmed before the mark.
    Ok(if text[at..].starts_with(vllm::MARK) { kept } else { kept.trim_end() }.to_owned())
}
