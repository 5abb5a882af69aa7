//! Reading a model's files: a folder as transformers has it, or a GGUF file.
//!
//! This is the one place of the crate that opens files: a counter is loaded once, by whoever may block. Of a GGUF file only the header
//! is read; every other file is bounded. An error names the file and what is wrong with it.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value as Json};

use super::counter::{Chat, Probed, PromptCounter, Templates};
use super::gguf::Metadata;
use super::harmony;
use super::images::ImageRule;
use super::normalise::Normalisation;
use super::probe;
use super::template::Template;
use super::vocabulary::Vocabulary;

/// The template that llama.cpp takes for a model that brings none.
const CHATML: &str = "{%- for message in messages -%}\n  \
    {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' -}}\n\
    {%- endfor -%}\n{%- if add_generation_prompt -%}\n  {{- '<|im_start|>assistant\n' -}}\n{%- endif -%}";
/// The largest tokenizer file that is read, in bytes. The largest in use has 35 MB.
const MAX_FILE: u64 = 256 << 20;
/// Members of tokenizer_config.json that templates get as variables.
const SPECIAL_TOKENS: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// Why a model's files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file that cannot be opened or read.
    #[error("{} cannot be read: {reason}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's words.
        reason: std::io::Error,
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

/// What a model's files say of its chat.
#[derive(Default)]
struct Sources {
    plain: Option<String>,
    with_tools: Option<String>,
    special: Map<String, Json>,
    /// config.json and preprocessor_config.json
    about: [Json; 2],
    /// What transformers is told to read the vocabulary with.
    class: Option<String>,
}

impl Sources {
    /// Whether vLLM's transformers (5.19) takes only the words and the merges of tokenizer.json, and does the rest as its own class for Llama 2
    /// has it: other blanks at the front and behind special tokens. That class is not used for most models whose files name it; which,
    /// stands in a list of its own, of which only what is certain is known here.
    fn is_rebuilt(&self, vocabulary: &Vocabulary) -> bool {
        let [config, _] = &self.about;
        let text = |name: &str| config.get(name).and_then(Json::as_str);
        let class = self.class.as_deref().or_else(|| text("tokenizer_class")).unwrap_or_default();
        let is_llama = ["Llama", "CodeLlama"].iter().any(|family| {
            class.strip_prefix(family).is_some_and(|rest| ["Tokenizer", "TokenizerFast"].contains(&rest))
        });
        is_llama
            && (!vocabulary.is_byte_level() || matches!(text("model_type"), Some("llama" | "code_llama")))
    }
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
            return Self::load_tekken(path, name);
        };
        let vocabulary = Vocabulary::from_json(&text);
        let mut vocabulary = vocabulary.map_err(|reason| LoadError::Vocabulary { path: file, reason })?;
        let sources = read_sources(path)?;
        vocabulary.is_rebuilt = sources.is_rebuilt(&vocabulary);
        Self::new(path, name, vocabulary, true, sources)
    }

    /// A folder of Mistral's own form. Its chats are rendered by code of mistral-common, so there is no template.
    fn load_tekken(path: &Path, name: String) -> Result<Self, LoadError> {
        let file = path.join("tekken.json");
        let Some(text) = read(&file)? else {
            let reason = "no tokenizer.json or tekken.json in this folder".into();
            return Err(LoadError::NotAModel { path: path.into(), reason });
        };
        let vocabulary = Vocabulary::from_tekken(&text);
        let vocabulary = vocabulary.map_err(|reason| LoadError::Vocabulary { path: file, reason })?;
        Self::new(path, name, vocabulary, false, Sources::default())
    }

    fn load_gguf(path: &Path, name: String) -> Result<Self, LoadError> {
        let Some(file) = open(path)? else {
            return Err(LoadError::Io { path: path.into(), reason: std::io::ErrorKind::NotFound.into() });
        };
        Self::from_gguf(path, name, BufReader::with_capacity(1 << 16, file))
    }

    /// A counter from the front of a GGUF file that stands at `path`.
    pub(super) fn from_gguf(path: &Path, name: String, file: impl Read) -> Result<Self, LoadError> {
        let metadata = Metadata::read(file)
            .map_err(|error| LoadError::NotAModel { path: path.into(), reason: error.to_string() })?;
        let vocabulary = Vocabulary::from_gguf(&metadata)
            .map_err(|reason| LoadError::Vocabulary { path: path.into(), reason })?;
        let tokens = metadata.texts("tokenizer.ggml.tokens").unwrap_or_default();
        let token =
            |id: &str| metadata.index(&format!("tokenizer.ggml.{id}_token_id")).and_then(|at| tokens.get(at));
        let mut special = Map::new();
        for (name, id) in
            [("bos_token", "bos"), ("eos_token", "eos"), ("unk_token", "unknown"), ("pad_token", "padding")]
        {
            if let Some(token) = token(id) {
                special.insert(name.into(), token.as_str().into());
            }
        }
        let template = |name: &str| metadata.text(name).map(str::to_owned);
        let sources = Sources {
            plain: template("tokenizer.chat_template").or_else(|| Some(CHATML.into())),
            with_tools: template("tokenizer.chat_template.tool_use"),
            special,
            about: [Json::Null, Json::Null],
            class: None,
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
        let Sources { plain, with_tools, special, about: [config, preprocessor], .. } = sources;
        let images = ImageRule::find(&config, &preprocessor, plain.as_deref().unwrap_or_default());
        let chat = plain
            .map(|plain| Chat::compile(&plain, with_tools.as_deref()))
            .transpose()
            .map_err(|reason| LoadError::Template { path: path.into(), reason })?;
        // Other models have borrowed the marks, but speak of themselves in their templates.
        let is_borrowed = sources_name_others(chat.as_ref().map(|chat| chat.vllm.plain.template.source()));
        let harmony = !is_borrowed && harmony::MARKS.iter().all(|mark| vocabulary.has(mark));
        let (vocabulary, memory) = (Arc::new(vocabulary), Arc::default());
        let mut counter = Self { name, vocabulary, nfc, special, chat, harmony, images, memory };
        counter.try_rounds();
        Ok(counter)
    }
}

impl PromptCounter {
    /// The same vocabulary with another template, and one for requests with tools, as a server was started with.
    ///
    /// # Errors
    /// What is wrong with a template, with the line.
    pub fn with_template(&self, source: &str, with_tools: Option<&str>) -> Result<Self, LoadError> {
        let chat = Chat::compile(source, with_tools)
            .map_err(|reason| LoadError::Template { path: PathBuf::from(&self.name), reason })?;
        let mut counter = Self {
            name: self.name.clone(),
            vocabulary: self.vocabulary.clone(),
            nfc: self.nfc,
            special: self.special.clone(),
            chat: Some(chat),
            harmony: self.harmony,
            images: self.images,
            memory: Arc::default(),
        };
        counter.try_rounds();
        Ok(counter)
    }

    /// Whether this is its template, whatever white space stands at the end.
    pub fn has_template(&self, source: &str) -> bool {
        let own = self.chat.as_ref().map(|chat| chat.vllm.plain.template.source());
        own.is_some_and(|own| own.trim_end() == source.trim_end())
    }
}

impl Chat {
    fn compile(plain: &str, with_tools: Option<&str>) -> Result<Self, String> {
        Ok(Self {
            bytes: plain.len(),
            vllm: Templates::compile(plain, with_tools, Normalisation::Vllm)?,
            llama_cpp: Templates::compile(plain, with_tools, Normalisation::LlamaCpp)?,
        })
    }
}

/// Whether there is a template, and it is not that of gpt-oss.
fn sources_name_others(template: Option<&str>) -> bool {
    template.is_some_and(|source| !(source.contains("ChatGPT") && source.contains("<|channel|>")))
}

impl Templates {
    fn compile(plain: &str, with_tools: Option<&str>, normalisation: Normalisation) -> Result<Self, String> {
        let probed = |source: &str| {
            let template = Template::compile(source, normalisation)?;
            Ok::<_, String>(Probed { traits: Arc::new(probe::traits(&template)), template })
        };
        Ok(Self { plain: probed(plain)?, with_tools: with_tools.map(probed).transpose()? })
    }
}

/// A file's bytes; none if there is no such file.
fn read(path: &Path) -> Result<Option<Vec<u8>>, LoadError> {
    let Some(file) = open(path)? else { return Ok(None) };
    let mut bytes = Vec::new();
    // What a file says of its size need not be so.
    let read = file.take(MAX_FILE + 1).read_to_end(&mut bytes);
    read.map_err(|reason| LoadError::Io { path: path.into(), reason })?;
    if bytes.len() as u64 > MAX_FILE {
        let reason = format!("has more than {MAX_FILE} bytes, which is the limit");
        return Err(LoadError::NotAModel { path: path.into(), reason });
    }
    Ok(Some(bytes))
}

/// A regular file: a pipe would be waited for, and a device has no end. None if there is nothing of that name.
fn open(path: &Path) -> Result<Option<File>, LoadError> {
    let failed = |reason| LoadError::Io { path: path.into(), reason };
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(error)),
        Ok(about) if !about.is_file() => {
            Err(LoadError::NotAModel { path: path.into(), reason: "is not a regular file".into() })
        }
        Ok(_) => File::open(path).map(Some).map_err(failed),
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
    let mut sources =
        Sources { about: [json("config.json")?, json("preprocessor_config.json")?], ..Sources::default() };
    sources.class = config.get("tokenizer_class").and_then(Json::as_str).map(str::to_owned);
    for name in SPECIAL_TOKENS {
        let token =
            config.get(name).and_then(|token| token.as_str().or_else(|| token.get("content")?.as_str()));
        if let Some(token) = token {
            sources.special.insert(name.into(), token.into());
        }
    }
    let path = folder.join("chat_template.jinja");
    if let Some(text) = read(&path)? {
        let text =
            String::from_utf8(text).map_err(|_| LoadError::Template { path, reason: "not utf-8".into() })?;
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
