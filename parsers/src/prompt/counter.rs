//! One prompt kind: a template and a vocabulary, read from a model's files, that render and count requests.
//!
//! A counter is shared by all threads. Counting is pure work, some milliseconds for a long conversation: it belongs on a thread that
//! may block. It must never answer [`TokenCount::Exact`] where a part of the prompt is not known to it.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json};

use super::bounds;
use super::count::TokenCount;
use super::gguf::Metadata;
use super::normalise::{self, Ending, Normalisation, Prepared, Refused, vllm};
use super::probe::{self, Traits};
use super::template::{RenderError, Template};
use super::vocabulary::Vocabulary;
use crate::request::ChatRequest;

/// The template that llama.cpp takes for a model that brings none.
const CHATML: &str = "{%- for message in messages -%}\n  \
    {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' -}}\n\
    {%- endfor -%}\n{%- if add_generation_prompt -%}\n  {{- '<|im_start|>assistant\n' -}}\n{%- endif -%}";
/// The largest tokenizer file that is read, in bytes. The largest in use has 35 MB.
const MAX_FILE: u64 = 256 << 20;
/// Tokens by which a printed date may differ from the one that stands in the count.
const DATE_ALLOWANCE: u64 = 8;
/// Members of tokenizer_config.json that templates get as variables.
const SPECIAL_TOKENS: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// Renders and counts the prompts of one model.
#[derive(Debug)]
pub struct PromptCounter {
    name: String,
    vocabulary: Vocabulary,
    /// Whether a plain text is normalised to NFC: as the file's own tokenizer does.
    nfc: bool,
    special: Map<String, Json>,
    chat: Option<Chat>,
}

/// The templates of a model, for both engines.
#[derive(Debug)]
struct Chat {
    bytes: usize,
    vllm: Templates,
    llama_cpp: Templates,
}

#[derive(Debug)]
struct Templates {
    plain: Probed,
    /// Some models bring another template for requests with tools.
    with_tools: Option<Probed>,
}

#[derive(Debug)]
struct Probed {
    template: Template,
    traits: Traits,
}

/// Why a model's files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file that cannot be opened or read.
    #[error("{} cannot be read: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// A folder without a vocabulary, or a file that is neither.
    #[error("{}: {reason}", path.display())]
    NotAModel {
        /// The folder or file.
        path: PathBuf,
        /// What is missing.
        reason: String,
    },
    /// A vocabulary that is broken or of an unknown kind.
    #[error("vocabulary of {}: {reason}", path.display())]
    Vocabulary {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A chat template that does not compile.
    #[error("chat template of {}: {reason}", path.display())]
    Template {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the line.
        reason: String,
    },
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

/// What a model's files say of its chat.
#[derive(Default)]
struct Sources {
    plain: Option<String>,
    with_tools: Option<String>,
    special: Map<String, Json>,
}

impl PromptCounter {
    /// Reads a model's vocabulary and template: from a folder (tokenizer.json with tokenizer_config.json, chat_template.jinja or
    /// chat_template.json) or from a GGUF file, of which only the header is read.
    ///
    /// # Errors
    /// The file that is missing, broken or not supported, and what is wrong with it.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        if path.is_dir() { Self::load_folder(path, name) } else { Self::load_gguf(path, name) }
    }

    fn load_folder(path: &Path, name: String) -> Result<Self, LoadError> {
        let file = path.join("tokenizer.json");
        let Some(text) = read(&file)? else {
            let reason = "no tokenizer.json in this folder".into();
            return Err(LoadError::NotAModel { path: path.into(), reason });
        };
        let vocabulary = Vocabulary::from_json(&text);
        let vocabulary = vocabulary.map_err(|reason| LoadError::Vocabulary { path: file, reason })?;
        let sources = read_sources(path)?;
        Self::new(path, name, vocabulary, true, sources)
    }

    fn load_gguf(path: &Path, name: String) -> Result<Self, LoadError> {
        let file = File::open(path).map_err(|source| LoadError::Io { path: path.into(), source })?;
        let metadata = Metadata::read(BufReader::with_capacity(1 << 16, file))
            .map_err(|error| LoadError::NotAModel { path: path.into(), reason: error.to_string() })?;
        let vocabulary = Vocabulary::from_gguf(&metadata)
            .map_err(|reason| LoadError::Vocabulary { path: path.into(), reason })?;
        let tokens = metadata.texts("tokenizer.ggml.tokens").unwrap_or_default();
        let token = |id: &str| metadata.index(&format!("tokenizer.ggml.{id}_token_id")).and_then(|at| tokens.get(at));
        let mut special = Map::new();
        for (name, id) in [("bos_token", "bos"), ("eos_token", "eos"), ("unk_token", "unknown"), ("pad_token", "padding")] {
            if let Some(token) = token(id) {
                special.insert(name.into(), token.as_str().into());
            }
        }
        let template = |name: &str| metadata.text(name).map(str::to_owned);
        let sources = Sources {
            plain: template("tokenizer.chat_template").or_else(|| Some(CHATML.into())),
            with_tools: template("tokenizer.chat_template.tool_use"),
            special,
        };
        Self::new(path, name, vocabulary, false, sources)
    }

    fn new(
        path: &Path,
        name: String,
        vocabulary: Vocabulary,
        nfc: bool,
        sources: Sources,
    ) -> Result<Self, LoadError> {
        let Sources { plain, with_tools, special } = sources;
        let chat = plain
            .map(|plain| {
                Ok(Chat {
                    bytes: plain.len(),
                    vllm: Templates::compile(&plain, with_tools.as_deref(), Normalisation::Vllm)?,
                    llama_cpp: Templates::compile(&plain, with_tools.as_deref(), Normalisation::LlamaCpp)?,
                })
            })
            .transpose()
            .map_err(|reason| LoadError::Template { path: path.into(), reason })?;
        Ok(Self { name, vocabulary, nfc, special, chat })
    }

    /// What was read, for people: `smollm2.gguf: bpe, 49152 tokens, template of 512 bytes`.
    pub fn describe(&self) -> String {
        let (model, size) = (self.vocabulary.model(), self.vocabulary.size());
        match &self.chat {
            Some(chat) => format!("{}: {model}, {size} tokens, template of {} bytes", self.name, chat.bytes),
            None => format!("{}: {model}, {size} tokens, no template", self.name),
        }
    }

    /// How many tokens the chat `request` has as a prompt on an engine.
    ///
    /// Exact for text. With images, sounds or videos: the text at least, and at most [`PER_IMAGE`](super::PER_IMAGE) more for each of them.
    /// A template that prints the date leaves a few tokens open, since this crate knows no clock.
    ///
    /// # Errors
    /// What the engine or the template would refuse, or that there is no template.
    pub fn count_chat(&self, request: &ChatRequest, normalisation: Normalisation) -> Result<TokenCount, CountError> {
        let prompt = self.render(request, normalisation)?;
        let text = self.vocabulary.count(&prompt.text, normalisation == Normalisation::Vllm);
        let text = text.map_err(CountError::Failed)?;
        let around = match normalisation {
            // vLLM leaves it to the template, unless it is asked.
            Normalisation::Vllm => match request.root().get("add_special_tokens").and_then(|value| value.as_bool()) {
                Some(true) => self.vocabulary.around(),
                _ => 0,
            },
            Normalisation::LlamaCpp => self.vocabulary.around(),
        };
        let open = prompt.media.saturating_mul(bounds::PER_IMAGE) + if prompt.dated { DATE_ALLOWANCE } else { 0 };
        let less = if prompt.dated { DATE_ALLOWANCE } else { 0 };
        let count = text + around;
        Ok(match open {
            0 => TokenCount::Exact(count),
            open => TokenCount::Between { low: count.saturating_sub(less), high: count.saturating_add(open) },
        })
    }

    /// How many tokens a plain prompt has, as completions take it: with what the tokenizer puts around a text.
    pub fn count_text(&self, text: &str) -> u64 {
        // A text that the vocabulary gives up on has no more tokens than bytes.
        let count = self.vocabulary.count(text, self.nfc).unwrap_or(text.len() as u64);
        count + self.vocabulary.around()
    }

    /// The prompt that the engine would make of the chat `request`, without what tokenising adds. Places of images are left out.
    ///
    /// # Errors
    /// As [`Self::count_chat`].
    pub fn render_chat(&self, request: &ChatRequest, normalisation: Normalisation) -> Result<String, CountError> {
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
            Normalisation::LlamaCpp => normalise::llama_cpp::prepare(request, &probed.traits)?,
        };
        let rendering = Rendering { probed, special: self.special(normalisation), size: request.body().len() };
        let mut prompt = rendering.render(prepared)?;
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
                .map(|name| ((*name).to_owned(), self.special.get(*name).cloned().unwrap_or_else(|| "".into())))
                .collect(),
        }
    }
}

/// A rendered prompt.
struct Prompt {
    text: String,
    media: u64,
    dated: bool,
}

/// A template with what every render of one request has in common.
struct Rendering<'a> {
    probed: &'a Probed,
    special: Map<String, Json>,
    size: usize,
}

impl Rendering<'_> {
    fn render(&self, prepared: Prepared) -> Result<Prompt, CountError> {
        let Prepared { context, ending, media } = prepared;
        let context: Map<String, Json> = self.special.clone().into_iter().chain(context).collect();
        let rendered = self.probed.template.render(normalise::to_value(&context), self.size)?;
        let (text, dated) = (rendered.text, rendered.dated);
        let text = match ending {
            Ending::Rendered | Ending::LeftOut => text,
            Ending::CutAtMark => cut_at_mark(&text)?,
            Ending::Continued { reasoning, content } => text + &self.reopened(context, &reasoning, content.as_deref())?,
        };
        Ok(Prompt { text, media, dated })
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
fn cut_at_mark(text: &str) -> Result<String, CountError> {
    let bare = vllm::MARK.trim_end();
    let Some(at) = text.rfind(bare) else {
        return Err(CountError::Refused("the template does not print the final message that is to be continued".into()));
    };
    let kept = &text[..at];
    // Where the template trimmed the text, the blank behind the mark is gone, and with it what was trimmed before the mark.
    Ok(if text[at..].starts_with(vllm::MARK) { kept } else { kept.trim_end() }.to_owned())
}

impl Templates {
    fn compile(plain: &str, with_tools: Option<&str>, normalisation: Normalisation) -> Result<Self, String> {
        let probed = |source: &str| {
            let template = Template::compile(source, normalisation)?;
            Ok::<_, String>(Probed { traits: probe::traits(&template), template })
        };
        Ok(Self { plain: probed(plain)?, with_tools: with_tools.map(probed).transpose()? })
    }
}

/// A file's bytes; none if there is no such file.
fn read(path: &Path) -> Result<Option<Vec<u8>>, LoadError> {
    let failed = |source| LoadError::Io { path: path.into(), source };
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(error)),
        Ok(about) if about.len() > MAX_FILE => {
            let reason = format!("has {} bytes; the limit is {MAX_FILE}", about.len());
            Err(LoadError::NotAModel { path: path.into(), reason })
        }
        Ok(_) => std::fs::read(path).map(Some).map_err(failed),
    }
}

/// The templates and special tokens of a folder, in transformers' order of precedence.
fn read_sources(folder: &Path) -> Result<Sources, LoadError> {
    let json = |name: &str| -> Result<Json, LoadError> {
        let path = folder.join(name);
        let Some(text) = read(&path)? else { return Ok(Json::Null) };
        serde_json::from_slice(&text)
            .map_err(|e| LoadError::NotAModel { path, reason: format!("not valid json: {e}") })
    };
    let config = json("tokenizer_config.json")?;
    let mut sources = Sources::default();
    for name in SPECIAL_TOKENS {
        let token = config.get(name).and_then(|token| token.as_str().or_else(|| token.get("content")?.as_str()));
        if let Some(token) = token {
            sources.special.insert(name.into(), token.into());
        }
    }
    let path = folder.join("chat_template.jinja");
    if let Some(text) = read(&path)? {
        let text = String::from_utf8(text)
            .map_err(|_| LoadError::Template { path, reason: "not utf-8".into() })?;
        sources.plain = Some(text);
        return Ok(sources);
    }
    let from_file = json("chat_template.json")?;
    let field = from_file.get("chat_template").or_else(|| config.get("chat_template"));
    match field {
        Some(Json::String(source)) => sources.plain = Some(source.clone()),
        Some(Json::Array(named)) => {
            let find = |wanted: &str| {
                let found = named.iter().find(|entry| entry["name"] == wanted)?;
                found["template"].as_str().map(str::to_owned)
            };
            sources.plain = find("default");
            sources.with_tools = find("tool_use");
        }
        _ => {}
    }
    Ok(sources)
}
