//! One prompt kind: a template and a vocabulary, read from a model's files, that render and count requests.
//!
//! A counter is shared by all threads. Counting is pure work, some milliseconds for a long conversation: it belongs on a thread that
//! may block. It must never answer [`TokenCount::Exact`] where a part of the prompt is not known to it.

use std::sync::Arc;

use serde_json::{Map, Value as Json};

use super::PER_IMAGE;
use super::completion::cut;
use super::count::TokenCount;
use super::harmony::{self, Piece};
use super::images::{ImageRule, images};
use super::normalise::{Normalisation, Refused, llama_cpp, vllm};
use super::probe::Traits;
use super::render::{Prompt, Rendering};
use super::stop::Stop;
use super::template::{RenderError, Template};
use super::turns::Memory;
use super::unsure::{self, is_unsure, wide_integers};
use super::vocabulary::{Counted, Vocabulary};
use crate::request::ChatRequest;

/// Tokens by which a printed date may differ from the one that stands in the count.
const DATE_ALLOWANCE: u64 = 8;
/// Tokens that stand around an image: its begin, its end, line breaks.
const AROUND_IMAGE: u64 = 6;

/// Renders and counts the prompts of one model.
pub struct PromptCounter {
    pub(super) name: String,
    pub(super) vocabulary: Arc<Vocabulary>,
    /// Whether a plain text is normalised to NFC: as the file's own tokenizer does.
    pub(super) nfc: bool,
    /// The special tokens that templates get as variables.
    pub(super) special: Map<String, Json>,
    pub(super) chat: Option<Chat>,
    /// A gpt-oss: vLLM renders its prompts without a template.
    pub(super) harmony: bool,
    /// What an image becomes, if that is known.
    pub(super) images: Option<ImageRule>,
    /// What was counted before.
    pub(super) memory: Arc<Memory>,
}

/// What a chat comes to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) counted: Counted,
    /// Parts that are no text.
    pub(super) media: u64,
    /// Digits of integers that are not to be told exactly.
    pub(super) wide: u64,
    /// Whether a date stands in it.
    pub(super) dated: bool,
    /// The engine may have another text.
    pub(super) unsure: bool,
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
    pub(super) traits: Arc<Traits>,
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
            RenderError::Failed(reason) | RenderError::Exhausted(reason) => Self::Failed(reason),
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
            return self.count_harmony(request, stop).map(|count| cut(request, normalisation, count));
        }
        let sum = match self.count_by_rounds(request, normalisation, stop)? {
            Some(sum) => sum,
            None => self.count_whole(request, normalisation, stop)?,
        };
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
        let count = sum.counted.tokens + around;
        let is_rebuilt = self.vocabulary.is_rebuilt && normalisation == Normalisation::Vllm;
        if sum.unsure || is_rebuilt {
            return Ok(cut(request, normalisation, unsure::bounds(request, count)));
        }
        let date = if sum.dated { DATE_ALLOWANCE } else { 0 } + sum.wide;
        let (least, most) = self.media(request, normalisation, sum.media);
        let low = count.saturating_sub(date).saturating_add(least);
        let high = count.saturating_add(date).saturating_add(sum.counted.rest).saturating_add(most);
        let count = if low == high { TokenCount::Exact(low) } else { TokenCount::Between { low, high } };
        Ok(cut(request, normalisation, count))
    }

    /// Renders the whole prompt and counts it.
    pub(super) fn count_whole(
        &self,
        request: &ChatRequest,
        normalisation: Normalisation,
        stop: &Stop,
    ) -> Result<Sum, CountError> {
        let prompt = self.render(request, normalisation)?;
        let counted = self.vocabulary.count(&prompt.text, normalisation == Normalisation::Vllm, stop);
        Ok(Sum {
            counted: counted.map_err(CountError::Failed)?,
            media: prompt.media,
            wide: wide_integers(request) as u64,
            dated: prompt.dated,
            unsure: prompt.unsure || is_unsure(request),
        })
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
        let (probed, _) = self.probed(request, normalisation).ok_or(CountError::NoTemplate)?;
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

    /// The template for a request, and whether it is the one for requests with tools.
    pub(super) fn probed(
        &self,
        request: &ChatRequest,
        normalisation: Normalisation,
    ) -> Option<(&Probed, bool)> {
        let chat = self.chat.as_ref()?;
        let templates = match normalisation {
            Normalisation::Vllm => &chat.vllm,
            Normalisation::LlamaCpp => &chat.llama_cpp,
        };
        match &templates.with_tools {
            Some(probed) if request.tools().next().is_some() => Some((probed, true)),
            _ => Some((&templates.plain, false)),
        }
    }

    /// Renders whole prompts from now on.
    pub(super) fn without_rounds(&mut self, normalisation: Normalisation) {
        let Some(chat) = &mut self.chat else { return };
        let templates = match normalisation {
            Normalisation::Vllm => &mut chat.vllm,
            Normalisation::LlamaCpp => &mut chat.llama_cpp,
        };
        for probed in std::iter::once(&mut templates.plain).chain(&mut templates.with_tools) {
            probed.template.forget_rounds();
        }
    }

    /// Whether of a conversation that grew only what is new is rendered and counted. Templates in which a message's text depends on more
    /// than can be told are rendered whole, with the same result.
    pub fn remembers(&self, normalisation: Normalisation) -> bool {
        let templates = self.chat.as_ref().map(|chat| match normalisation {
            Normalisation::Vllm => &chat.vllm,
            Normalisation::LlamaCpp => &chat.llama_cpp,
        });
        templates.is_some_and(|templates| templates.plain.template.has_rounds())
            && self.vocabulary.has_anchors()
    }

    /// The same counter, but every prompt is rendered and counted anew: what others are compared with.
    #[must_use]
    pub fn forgetful(mut self) -> Self {
        self.without_rounds(Normalisation::Vllm);
        self.without_rounds(Normalisation::LlamaCpp);
        // Nobody else has it: such a counter is made for the comparison.
        if let Some(vocabulary) = Arc::get_mut(&mut self.vocabulary) {
            vocabulary.remember_nothing();
        }
        self
    }

    /// The special tokens that a template gets as variables.
    pub(super) fn special(&self, normalisation: Normalisation) -> Map<String, Json> {
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
