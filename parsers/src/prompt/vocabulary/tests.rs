//! The expected numbers are those of Hugging Face tokenizers 0.23 on the same file.

use serde_json::{Value as Json, json};

use super::Vocabulary;
use crate::prompt::gguf::{Meta, Metadata};
use crate::prompt::gguf_writer::write;

const TINY: &str = include_str!("../../../tests/fixtures/tiny/tokenizer.json");

fn tiny() -> Json {
    serde_json::from_str(TINY).unwrap()
}

fn from_json(config: &Json) -> Result<Vocabulary, String> {
    Vocabulary::from_json(config.to_string().as_bytes())
}

/// The tiny vocabulary as a GGUF file has it.
fn as_gguf(pre: &str) -> Vec<(&'static str, Meta)> {
    let config = tiny();
    let vocab = config["model"]["vocab"].as_object().unwrap();
    let mut tokens = vec![String::new(); vocab.len()];
    vocab.iter().for_each(|(token, id)| tokens[id.as_u64().unwrap() as usize] = token.clone());
    let mut types = vec![1; tokens.len()];
    for added in config["added_tokens"].as_array().unwrap() {
        tokens.push(added["content"].as_str().unwrap().into());
        types.push(if added["special"] == true { 3 } else { 4 });
    }
    let merges = config["model"]["merges"].as_array().unwrap().iter();
    let merges = merges.map(|pair| format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()));
    vec![
        ("tokenizer.ggml.model", Meta::Text("gpt2".into())),
        ("tokenizer.ggml.pre", Meta::Text(pre.into())),
        ("tokenizer.ggml.tokens", Meta::Texts(tokens)),
        ("tokenizer.ggml.token_type", Meta::Integers(types)),
        ("tokenizer.ggml.merges", Meta::Texts(merges.collect())),
    ]
}

fn from_gguf(pairs: &[(&str, Meta)]) -> Result<Vocabulary, String> {
    Vocabulary::from_gguf(&Metadata::read(write(pairs).as_slice()).unwrap())
}

#[test]
fn text_has_the_tokens_that_the_models_own_tokenizer_gives_it() {
    let vocabularies = [from_json(&tiny()).unwrap(), from_gguf(&as_gguf("qwen2")).unwrap()];
    for (text, tokens) in [
        ("", 0),
        ("hello world", 7),
        ("fn main() {\n    let x = 1234;\n}\n", 19),
        ("<|im_start|>user\nhi<|im_end|>\n", 8),
        ("<|im_start|><|im_end|>", 2),
        ("<think>a</think>", 3),
        ("<|im_start |>", 9),
        ("你好，世界！", 16),
        ("cafe\u{301}", 5),
        ("café", 5),
        ("  \n\n\n  x", 7),
        ("don't DON'T", 10),
        ("👋🏽", 8),
        ("\0\u{4}\u{7f}", 3),
        (&"a".repeat(200), 200),
        (&"1".repeat(30), 30),
        (&" ".repeat(64), 16),
    ] {
        for vocabulary in &vocabularies {
            assert_eq!(vocabulary.count(text, true), Ok(tokens), "{text:?} in {vocabulary:?}");
        }
    }
}

#[test]
fn only_vllm_composes_characters() {
    let vocabulary = from_gguf(&as_gguf("qwen2")).unwrap();
    assert_eq!(vocabulary.count("cafe\u{301}", true), vocabulary.count("café", false));
    assert!(vocabulary.count("cafe\u{301}", false) > vocabulary.count("café", false));
    let vocabulary = from_gguf(&as_gguf("gpt-2")).unwrap();
    assert_eq!(vocabulary.count("cafe\u{301}", true), vocabulary.count("cafe\u{301}", false));
}

#[test]
fn a_byte_without_a_token_is_left_out_by_llama_cpp_and_unknown_to_vllm() {
    let mut config = tiny();
    let vocab = config["model"]["vocab"].as_object_mut().unwrap();
    let four = vocab.shift_remove("Ą").unwrap();
    vocab.insert("<unk>".into(), four);
    let without = from_json(&config).unwrap();
    assert_eq!((without.count("a\u{4}b", false), without.count("a\u{4}b", true)), (Ok(2), Ok(2)));
    config["model"]["unk_token"] = "<unk>".into();
    let with = from_json(&config).unwrap();
    assert_eq!((with.count("a\u{4}b", false), with.count("a\u{4}b", true)), (Ok(2), Ok(3)));
    assert_eq!(with.size(), 609);
}

#[test]
fn threads_count_alike() {
    let vocabulary = from_json(&tiny()).unwrap();
    let text = TINY.get(..4000).unwrap();
    let alone = vocabulary.count(text, true).unwrap();
    std::thread::scope(|scope| {
        let counts: Vec<_> = (0..8).map(|_| scope.spawn(|| vocabulary.count(text, true).unwrap())).collect();
        counts.into_iter().for_each(|count| assert_eq!(count.join().unwrap(), alone));
    });
}

/// The tiny vocabulary with one place changed.
fn changed(pointer: &str, value: Json) -> String {
    let mut config = tiny();
    *config.pointer_mut(pointer).unwrap() = value;
    from_json(&config).unwrap_err()
}

#[test]
fn a_broken_vocabulary_is_refused_with_the_place() {
    assert_eq!(from_json(&json!([])).unwrap_err(), "a tokenizer.json must be a JSON object, found an array");
    assert_eq!(from_json(&json!({})).unwrap_err(), "the config has no `model`");
    assert!(Vocabulary::from_json(b"{\"model\":").unwrap_err().starts_with("not valid json: EOF"));
    assert_eq!(changed("/model/vocab", json!({})), "vocabulary has 0 tokens; 1 to 4194304 are read");
    assert_eq!(
        changed("/model/vocab/a", json!(4_000_000_000_u32)),
        "token \"a\" has the id 4000000000; 0 to 4194303 are read"
    );
    assert_eq!(changed("/model/vocab/a", json!(-1)), "token \"a\" has the id -1; 0 to 4194303 are read");
    assert_eq!(
        changed("/added_tokens/0/id", json!(1e18)),
        "token \"<|endoftext|>\" has the id 1e+18; 0 to 4194303 are read"
    );
    assert_eq!(
        changed("/added_tokens/0/content", json!("x".repeat(70_000))),
        "a token has 70000 bytes; the limit is 65535"
    );
    assert_eq!(changed("/model/merges/3", json!(["a", "zzz"])), "merge 3 names \"zzz\", which is no token");
    assert_eq!(
        changed("/model/merges/3", json!(["a", "\u{120}"])),
        "merge 3 names \"a\u{120}\", which is no token"
    );
    assert_eq!(changed("/model/continuing_subword_prefix", json!("##")), "merge 0 lacks the prefix ##");
    let words = json!({"model": {"type": "WordLevel", "vocab": {"a": 0}}});
    assert_eq!(from_json(&words).unwrap_err(), "vocabulary of kind WordLevel is not read");
    assert_eq!(changed("/pre_tokenizer", json!({"type": "Magic"})), "pre-tokenizer Magic is not known");
}

#[test]
fn a_gguf_vocabulary_that_is_not_known_is_refused_by_its_name() {
    let without = |key: &str| {
        let pairs: Vec<_> = as_gguf("qwen2").into_iter().filter(|(own, _)| *own != key).collect();
        from_gguf(&pairs).unwrap_err()
    };
    assert_eq!(without("tokenizer.ggml.tokens"), "tokenizer.ggml.tokens is missing");
    assert_eq!(without("tokenizer.ggml.merges"), "tokenizer.ggml.merges is missing");
    assert_eq!(without("tokenizer.ggml.pre"), "tokenizer.ggml.pre is missing");
    let mut pairs = as_gguf("qwen2");
    pairs[0].1 = Meta::Text("llama".into());
    assert_eq!(
        from_gguf(&pairs).unwrap_err(),
        "vocabulary of kind llama is not read from gguf files: give the model's tokenizer.json instead"
    );
    assert!(from_gguf(&as_gguf("klingon")).unwrap_err().contains("klingon"));
    pairs = as_gguf("qwen2");
    pairs[4].1 = Meta::Texts(vec!["one".into()]);
    assert_eq!(from_gguf(&pairs).unwrap_err(), "merge 0 is not two tokens: \"one\"");
}
