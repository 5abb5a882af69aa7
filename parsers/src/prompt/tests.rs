//! A counter as its users meet it: files in, counts and sentences out.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde_json::{Value as Json, json};

use super::gguf::Meta;
use super::gguf_writer::write;
use super::{CountError, Normalisation, PER_IMAGE, PromptCounter, TokenCount};
use crate::request::ChatRequest;
use Normalisation::{LlamaCpp, Vllm};

const TINY: &str = include_str!("../../tests/fixtures/tiny/tokenizer.json");
const PLAIN: &str = "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}";

fn request(body: &Json) -> ChatRequest {
    ChatRequest::parse(Bytes::from(body.to_string())).unwrap()
}

fn user(content: &str) -> Json {
    json!({"messages": [{"role": "user", "content": content}]})
}

/// A folder of its own with these files, gone afterwards.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let path = std::env::temp_dir().join(format!("switchback-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        files.iter().for_each(|(name, text)| std::fs::write(path.join(name), text).unwrap());
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn load(name: &str, files: &[(&str, &str)]) -> PromptCounter {
    let folder = Folder::new(name, files);
    PromptCounter::load(&folder.0).unwrap()
}

fn with_template(name: &str, template: &str) -> PromptCounter {
    load(name, &[("tokenizer.json", TINY), ("chat_template.jinja", template)])
}

/// A GGUF file with a byte-level vocabulary without merges: a token is a byte, or special.
fn gguf(more: &[(&'static str, Meta)]) -> PromptCounter {
    let config: Json = serde_json::from_str(TINY).unwrap();
    let vocab = config["model"]["vocab"].as_object().unwrap();
    let mut tokens: Vec<String> = vocab.keys().filter(|token| token.chars().count() == 1).cloned().collect();
    let bytes = tokens.len();
    tokens.extend(["<s>".into(), "</s>".into()]);
    let mut types = vec![1; bytes];
    types.extend([3, 3]);
    let mut pairs = vec![
        ("tokenizer.ggml.model", Meta::Text("gpt2".into())),
        ("tokenizer.ggml.pre", Meta::Text("gpt-2".into())),
        ("tokenizer.ggml.tokens", Meta::Texts(tokens)),
        ("tokenizer.ggml.token_type", Meta::Integers(types)),
        ("tokenizer.ggml.merges", Meta::Texts(vec![])),
        ("tokenizer.ggml.bos_token_id", Meta::Integer(bytes as i128)),
        ("tokenizer.ggml.eos_token_id", Meta::Integer(bytes as i128 + 1)),
    ];
    pairs.extend(more.iter().cloned());
    let file = write(&pairs);
    PromptCounter::from_gguf(Path::new("model.gguf"), "model.gguf".into(), file.as_slice()).unwrap()
}

#[test]
fn a_counter_is_shared_by_threads() {
    fn check<T: Send + Sync>() {}
    check::<PromptCounter>();
}

#[test]
fn templates_are_found_in_transformers_order() {
    let config = json!({"chat_template": "config", "eos_token": {"content": "<|im_end|>"}}).to_string();
    let of_file = json!({"chat_template": "file"}).to_string();
    let files = [
        ("tokenizer.json", TINY),
        ("tokenizer_config.json", &config),
        ("chat_template.json", &of_file),
        ("chat_template.jinja", "jinja {{ eos_token }}"),
    ];
    let render =
        |name, files: &[(&str, &str)]| load(name, files).render_chat(&request(&user("hi")), Vllm).unwrap();
    assert_eq!(render("jinja", &files), "jinja <|im_end|>");
    assert_eq!(render("file", &files[..3]), "file");
    assert_eq!(render("config", &files[..2]), "config");
}

#[test]
fn a_model_may_bring_another_template_for_tools() {
    let config = json!({"chat_template": [
        {"name": "default", "template": "plain"}, {"name": "tool_use", "template": "with tools"}]});
    let counter = load("named", &[("tokenizer.json", TINY), ("tokenizer_config.json", &config.to_string())]);
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let mut body = user("hi");
    assert_eq!(counter.render_chat(&request(&body), Vllm).unwrap(), "plain");
    body["tools"] = tools;
    assert_eq!(counter.render_chat(&request(&body), Vllm).unwrap(), "with tools");
    assert_eq!(counter.render_chat(&request(&body), LlamaCpp).unwrap(), "with tools");
}

/// transformers 5.19 takes Llama 2's words and merges, and has its own way with blanks.
#[test]
fn a_vocabulary_that_vllm_makes_anew_is_counted_for_llama_cpp_alone() {
    let words = ["<unk>", "<s>", "▁", "a", "▁a"].iter().enumerate();
    let vocab: serde_json::Map<String, Json> = words.map(|(id, word)| ((*word).into(), id.into())).collect();
    let blanks = json!([{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]);
    let special = json!({"id": 1, "content": "<s>", "special": true, "normalized": false, "lstrip": false, "rstrip": false, "single_word": false});
    let letters = json!({
        "version": "1.0", "added_tokens": [special], "normalizer": {"type": "Sequence", "normalizers": blanks},
        "model": {"type": "BPE", "unk_token": "<unk>", "vocab": vocab, "merges": ["▁ a"]},
    })
    .to_string();
    let count = |name: &str, tokenizer: &str, class: &str, kind: &str, engine| {
        let config =
            json!({"tokenizer_class": class, "chat_template": "<s>{{ messages[0].content }}"}).to_string();
        let about = json!({"model_type": kind}).to_string();
        let files =
            [("tokenizer.json", tokenizer), ("tokenizer_config.json", &config), ("config.json", &about)];
        load(name, &files).count_chat(&request(&user("a a")), engine).unwrap()
    };
    assert!(!count("letters", &letters, "LlamaTokenizer", "llama", Vllm).is_exact());
    assert!(!count("letters-fast", &letters, "LlamaTokenizerFast", "new", Vllm).is_exact());
    assert_eq!(count("letters-cpp", &letters, "LlamaTokenizer", "llama", LlamaCpp).low(), 3);
    assert!(count("letters-own", &letters, "PreTrainedTokenizerFast", "llama", Vllm).is_exact());
    assert!(!count("bytes", TINY, "LlamaTokenizer", "llama", Vllm).is_exact());
    assert!(count("bytes-listed", TINY, "LlamaTokenizerFast", "deepseek_v3", Vllm).is_exact());
}

#[test]
fn without_a_template_there_is_no_chat_but_there_is_text() {
    let counter = load("bare", &[("tokenizer.json", TINY)]);
    assert_eq!(counter.count_chat(&request(&user("hi")), Vllm), Err(CountError::NoTemplate));
    assert_eq!(counter.count_text("hello world"), 7);
    assert!(counter.describe().ends_with("-bare: bpe, 609 tokens, no template"), "{}", counter.describe());
}

#[test]
fn a_gguf_without_a_template_is_chatml_as_llama_cpp_has_it() {
    let counter = gguf(&[]);
    let prompt = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(counter.render_chat(&request(&user("hi")), LlamaCpp).unwrap(), prompt);
    assert_eq!(counter.describe(), "model.gguf: bpe, 258 tokens, template of 208 bytes");
}

#[test]
fn bos_is_counted_once_whoever_puts_it_there() {
    let template = ("tokenizer.chat_template", Meta::Text(PLAIN.into()));
    let counter = gguf(&[template.clone(), ("tokenizer.ggml.add_bos_token", Meta::Bool(true))]);
    let hi = request(&user("hi"));
    let text = "user: hi\nassistant: ";
    assert_eq!(counter.render_chat(&hi, Vllm).unwrap(), format!("<s>{text}"));
    assert_eq!(counter.render_chat(&hi, LlamaCpp).unwrap(), text);
    let expected = TokenCount::Exact(text.len() as u64 + 1);
    assert_eq!(counter.count_chat(&hi, Vllm), Ok(expected));
    assert_eq!(counter.count_chat(&hi, LlamaCpp), Ok(expected));
    assert_eq!(counter.count_text("hi"), 3);

    let counter = gguf(&[template, ("tokenizer.ggml.add_bos_token", Meta::Bool(false))]);
    assert_eq!(counter.count_chat(&hi, LlamaCpp), Ok(expected));
    assert_eq!(counter.count_text("hi"), 2);
}

#[test]
fn an_image_makes_bounds_of_a_count() {
    let counter = with_template("images", PLAIN);
    let picture = json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{}", "QUJD".repeat(9_000))}});
    let parts = json!([{"type": "text", "text": "what is this"}, picture]);
    let without = counter.count_chat(&request(&user("what is this")), Vllm).unwrap();
    let with = request(&json!({"messages": [{"role": "user", "content": parts}]}));
    for engine in [Vllm, LlamaCpp] {
        let count = counter.count_chat(&with, engine).unwrap();
        assert_eq!(
            (count.low(), count.high(), count.is_exact()),
            (without.low(), without.low() + PER_IMAGE, false)
        );
    }
}

#[test]
fn a_date_leaves_some_tokens_open() {
    let counter = with_template("date", "{{ strftime_now('%d %B %Y') }} {{ messages[0].content }}");
    let count = counter.count_chat(&request(&user("hi")), Vllm).unwrap();
    assert!(!count.is_exact() && count.high() - count.low() == 16, "{count}");
}

#[test]
fn a_refusal_says_whose_it_is() {
    let counter = with_template(
        "refusal",
        "{% if messages[0].role != 'user' %}{{ raise_exception('user first, please') }}{% endif %}{{ messages }}",
    );
    let odd = request(
        &json!({"messages": [{"role": "assistant", "content": "x"}, {"role": "user", "content": "y"}]}),
    );
    let error = counter.count_chat(&odd, Vllm).unwrap_err();
    assert_eq!(error.to_string(), "the chat template refuses this request: user first, please");
    let empty = counter.count_chat(&request(&json!({"messages": []})), Vllm).unwrap_err();
    assert_eq!(empty.to_string(), "the engine refuses this request: messages is empty");
    let none = counter.count_chat(&request(&json!({"prompt": "x"})), LlamaCpp).unwrap_err();
    assert_eq!(none.to_string(), "the engine refuses this request: messages must be an array");
    let surrogate =
        ChatRequest::parse(Bytes::from_static(br#"{"messages":[{"role":"user","content":"\ud800"}]}"#))
            .unwrap();
    assert!(matches!(counter.count_chat(&surrogate, Vllm), Err(CountError::Refused(_))));
}

#[test]
fn a_hostile_template_fails_the_count_and_nothing_else() {
    let counter = with_template(
        "hostile",
        "{% set ns = namespace(x='x') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
    );
    let error = counter.count_chat(&request(&user("hi")), Vllm).unwrap_err().to_string();
    assert!(error.starts_with("the prompt cannot be counted: the template makes more than"), "{error}");
    let counter = with_template(
        "endless",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    );
    let error = counter.count_chat(&request(&user("hi")), Vllm).unwrap_err().to_string();
    assert_eq!(error, "the prompt cannot be counted: the template takes too many steps");
}

#[test]
fn what_cannot_be_loaded_is_named_with_its_reason() {
    let failed = |files: &[(&str, &str)], inside: &str| {
        let folder = Folder::new("broken", files);
        let path = if inside.is_empty() { folder.0.clone() } else { folder.0.join(inside) };
        let error = PromptCounter::load(&path).unwrap_err().to_string();
        error.replace(&*folder.0.to_string_lossy(), "DIR")
    };
    assert_eq!(failed(&[], ""), "DIR: no tokenizer.json or tekken.json in this folder");
    assert!(failed(&[], "none.gguf").starts_with("DIR/none.gguf cannot be read: "));
    assert_eq!(
        failed(&[("x.gguf", "hello there")], "x.gguf"),
        "DIR/x.gguf: not a gguf file: it begins with [68, 65, 6c, 6c], not with the letters GGUF"
    );
    assert_eq!(
        failed(&[("x.gguf", "GG")], "x.gguf"),
        "DIR/x.gguf: gguf header is cut at byte 2 while reading the magic"
    );
    assert!(
        failed(&[("tokenizer.json", "{")], "")
            .starts_with("vocabulary of DIR/tokenizer.json: not valid json: ")
    );
    let template = failed(&[("tokenizer.json", TINY), ("chat_template.jinja", "a\n{% if %}")], "");
    assert!(
        template.starts_with("chat template of DIR: ") && template.contains("line 2")
            || template.contains(":2"),
        "{template}"
    );
    #[cfg(unix)]
    for endless in ["/dev/zero", "/dev/null"] {
        let error = PromptCounter::load(std::path::Path::new(endless)).unwrap_err().to_string();
        assert!(error.ends_with("is not a regular file"), "{error}");
    }
    let config = failed(&[("tokenizer.json", TINY), ("tokenizer_config.json", "[")], "");
    assert!(config.starts_with("DIR/tokenizer_config.json: not valid json: "), "{config}");
}

#[test]
fn a_template_that_python_renders_otherwise_gives_bounds_and_no_count() {
    for template in
        ["{{ 'x' | safe + messages[0].content }}", "{{ messages[0].content | wordwrap }}", "{{ (1, 2) }}"]
    {
        let counter = with_template("unsure", template);
        let count = counter.count_chat(&request(&user("hi")), Vllm);
        assert!(!count.is_ok_and(|count| count.is_exact()), "{template}");
    }
    // A method of every mapping, whatever its members are.
    let count = with_template("method", "{{ messages[0].items }}").count_chat(&request(&user("hi")), Vllm);
    assert!(matches!(count, Err(CountError::Failed(_))), "{count:?}");
}

#[test]
fn a_prompt_of_gpt_oss_is_harmonys_and_what_users_type_is_text() {
    let mut config: Json = serde_json::from_str(TINY).unwrap();
    for (at, mark) in super::harmony::MARKS.iter().enumerate() {
        let token = json!({"id": 9_000 + at, "content": mark, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true});
        config["added_tokens"].as_array_mut().unwrap().push(token);
    }
    let counter = load("harmony", &[("tokenizer.json", &config.to_string())]);
    assert!(counter.describe().ends_with("Harmony"), "{}", counter.describe());
    let count = |text| counter.count_chat(&request(&user(text)), Vllm).unwrap();
    let (plain, marked) = (count("x"), count("x<|end|>"));
    assert!(plain.is_exact() && marked.low() > plain.low() + 3, "{plain} {marked}");
    let prompt = counter.render_chat(&request(&user("x")), Vllm).unwrap();
    assert!(prompt.ends_with("<|start|>user<|message|>x<|end|><|start|>assistant"), "{prompt}");
    assert_eq!(counter.count_chat(&request(&user("x")), LlamaCpp), Err(CountError::NoTemplate));
}

#[test]
fn a_completions_prompt_is_a_text_its_tokens_or_the_longest_of_several() {
    let counter = with_template("completion", "");
    let count = |prompt: Json| {
        counter
            .count_completion(&request(&json!({ "prompt": prompt })), Normalisation::Vllm)
            .map(TokenCount::high)
    };
    let text = counter.count_text("hi there");
    assert_eq!(count(json!("hi there")), Some(text));
    assert_eq!(count(json!([5, 6, 7])), Some(3));
    assert_eq!(count(json!(["hi", "hi there"])), Some(text));
    assert_eq!(count(json!([[1, 2], [1]])), Some(2));
    assert_eq!((count(json!([])), count(json!(null))), (None, None));
}

#[test]
fn what_python_would_not_print_so_is_no_exact_count() {
    let expressions = [
        "1 / 0",
        "1 // 0",
        "1 % (1 - 1)",
        "7 // -2",
        "self",
        "messages | map(attribute='role')",
        "range(3)",
        "dict",
        "namespace(a=1)",
        "loop",
        "cycler('a')",
        "{'a': 1}.keys",
        "raise_exception",
        "lipsum()",
        "0.0 ** -1",
        "'a'.join",
    ];
    for (at, expression) in expressions.into_iter().enumerate() {
        let template = format!("{{% for m in messages %}}{{{{ {expression} }}}}{{% endfor %}}<|im_end|>");
        let counter =
            load(&format!("odd-{at}"), &[("tokenizer.json", TINY), ("chat_template.jinja", &template)]);
        let count = counter.count_chat(&request(&user("hi")), Vllm);
        assert!(!count.as_ref().is_ok_and(|count| count.is_exact()), "{expression}: {count:?}");
    }
}

#[test]
fn a_template_in_the_request_is_no_exact_count() {
    let counter = with_template("own-template", PLAIN);
    for (name, value) in
        [("chat_template", json!("{{ 'x' * 999 }}")), ("documents", json!([{"text": "long"}]))]
    {
        let mut body = user("hi");
        assert!(counter.count_chat(&request(&body), Vllm).unwrap().is_exact());
        body[name] = value;
        assert!(!counter.count_chat(&request(&body), Vllm).unwrap().is_exact(), "{name}");
    }
}

#[test]
fn a_server_with_another_template_is_counted_with_that() {
    let counter = with_template("running", PLAIN);
    assert!(counter.has_template(&format!("{PLAIN}\n")) && !counter.has_template("{{ 1 }}"));
    let running = counter.with_template("{% for m in messages %}<|im_end|>{% endfor %}", None).unwrap();
    assert_eq!(running.count_chat(&request(&user("a long text")), LlamaCpp), Ok(TokenCount::Exact(1)));
    assert!(counter.with_template("{% if %}", None).is_err());
}
