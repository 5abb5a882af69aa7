//! Rendering one whole prompt: what the engine hands to the template, and how the prompt ends.
//!
//! Most prompts end as the template ends them; a message that is to be continued is cut at its text, or stands behind the generation
//! prompt, as each engine does it. What the template does not print cannot be continued and is refused.

use serde_json::{Map, Value as Json};

use super::counter::{CountError, Probed};
use super::normalise::{self, Ending, Prepared, vllm};

/// A rendered prompt.
pub(super) struct Prompt {
    pub(super) text: String,
    pub(super) media: u64,
    pub(super) dated: bool,
    /// The engine may have another text.
    pub(super) unsure: bool,
}

/// A template with what every render of one request has in common.
pub(super) struct Rendering<'a> {
    pub(super) probed: &'a Probed,
    pub(super) special: Map<String, Json>,
    /// Of the request, in bytes.
    pub(super) size: usize,
}

impl Rendering<'_> {
    pub(super) fn render(&self, prepared: Prepared) -> Result<Prompt, CountError> {
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
