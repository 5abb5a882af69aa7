//! The expected numbers are those of Hugging Face tokenizers 0.23 on the same file.

use serde_json::{Value as Json, json};

use super::{Counted, Vocabulary};
use crate::prompt::gguf::{Meta, Metadata};
use crate::prompt::gguf_writer::write;
use crate::prompt::stop::Stop;

const TINY: &str = include_str!("../../../tests/fixtures/tiny/tokenizer.json");

fn count(vocabulary: &Vocabulary, text: &str, for_vllm: bool) -> Result<u64, String> {
    vocabulary.count(text, for_vllm, &Stop::default()).map(|counted| counted.tokens)
}

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
            assert_eq!(count(vocabulary, text, true), Ok(tokens), "{text:?} in {vocabulary:?}");
        }
    }
}

#[test]
fn only_vllm_composes_characters() {
    let vocabulary = from_gguf(&as_gguf("qwen2")).unwrap();
    assert_eq!(count(&vocabulary, "cafe\u{301}", true), count(&vocabulary, "café", false));
    assert!(count(&vocabulary, "cafe\u{301}", false) > count(&vocabulary, "café", false));
    let vocabulary = from_gguf(&as_gguf("gpt-2")).unwrap();
    assert_eq!(count(&vocabulary, "cafe\u{301}", true), count(&vocabulary, "cafe\u{301}", false));
}

#[test]
fn a_byte_without_a_token_is_left_out_by_llama_cpp_and_unknown_to_vllm() {
    let mut config = tiny();
    let vocab = config["model"]["vocab"].as_object_mut().unwrap();
    let four = vocab.shift_remove("Ą").unwrap();
    vocab.insert("<unk>".into(), four);
    let without = from_json(&config).unwrap();
    assert_eq!((count(&without, "a\u{4}b", false), count(&without, "a\u{4}b", true)), (Ok(2), Ok(2)));
    config["model"]["unk_token"] = "<unk>".into();
    let with = from_json(&config).unwrap();
    assert_eq!((count(&with, "a\u{4}b", false), count(&with, "a\u{4}b", true)), (Ok(2), Ok(3)));
    assert_eq!(with.size(), 609);
}

#[test]
fn threads_count_alike() {
    let vocabulary = from_json(&tiny()).unwrap();
    let text = TINY.get(..4000).unwrap();
    let alone = count(&vocabulary, text, true).unwrap();
    std::thread::scope(|scope| {
        let counts: Vec<_> =
            (0..8).map(|_| scope.spawn(|| count(&vocabulary, text, true).unwrap())).collect();
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

#[test]
fn a_text_counted_before_has_the_same_count_and_so_has_one_with_other_neighbours() {
    let vocabulary = from_json(&tiny()).unwrap();
    let part = |seed: usize| format!("part {seed} ").repeat(40);
    let chat = |parts: std::ops::Range<usize>| parts.map(|at| part(at) + "<|im_end|>").collect::<String>();
    let first = count(&vocabulary, &chat(0..20), true).unwrap();
    assert_eq!(count(&vocabulary, &chat(0..20), true), Ok(first));
    let fresh = from_json(&tiny()).unwrap();
    assert_eq!(count(&vocabulary, &chat(5..25), true), count(&fresh, &chat(5..25), true));
}

#[test]
fn a_count_ends_when_its_limit_is_passed_or_nobody_waits() {
    let vocabulary = from_json(&tiny()).unwrap();
    let text = "some words of no use ".repeat(20_000);
    let whole = count(&vocabulary, &text, true).unwrap();
    let fresh = from_json(&tiny()).unwrap();
    let counted = fresh.count(&text, true, &Stop::at(Some(100))).unwrap();
    assert!(counted.tokens > 100 && counted.tokens < whole, "{counted:?}");
    assert!(counted.tokens + counted.rest >= whole, "{counted:?}");
    // What was not counted to the end is not remembered.
    assert_eq!(count(&fresh, &text, true), Ok(whole));
    assert_eq!(
        fresh.count("short", true, &Stop::at(Some(100))),
        Ok(Counted { tokens: count(&fresh, "short", true).unwrap(), rest: 0 })
    );
    let stop = Stop::default();
    stop.cancel();
    let another = text.replace("words", "texts");
    assert!(fresh.count(&another, true, &stop).unwrap_err().contains("nobody waits"));
}

/// A vocabulary in SentencePiece's way, with tokens that are looked for in the text as it is and in what was normalised.
fn with_metaspace(pre_tokenizer: Json) -> Json {
    let token = |id: u32, content: &str, strips: bool, normalized: bool| json!({"id": id, "content": content, "lstrip": strips, "rstrip": strips, "normalized": normalized, "single_word": false, "special": true});
    json!({
        "version": "1.0", "normalizer": null, "post_processor": null, "decoder": null, "pre_tokenizer": pre_tokenizer,
        "added_tokens": [token(6, "<s>", false, false), token(7, "[N]", false, true), token(8, "[L]", true, false),
                         token(9, "b b", false, true)],
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
                  "vocab": {"<unk>": 0, "▁": 1, "a": 2, "b": 3, "ab": 4, ".": 5}, "merges": [["a", "b"]]}
    })
}

fn metaspace(scheme: &str) -> Json {
    json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": true})
}

#[test]
fn a_blank_is_put_in_front_of_each_piece_behind_the_added_tokens() {
    let words =
        json!({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace("always")]});
    for (pre_tokenizer, expected) in [
        (metaspace("always"), [4, 8, 6, 5, 3, 6, 2, 5, 0]),
        (metaspace("first"), [4, 6, 5, 4, 3, 6, 2, 4, 0]),
        (metaspace("never"), [3, 6, 5, 3, 3, 5, 2, 3, 0]),
        (words, [4, 8, 6, 5, 3, 6, 2, 5, 0]),
    ] {
        let vocabulary = from_json(&with_metaspace(pre_tokenizer.clone())).unwrap();
        let texts =
            ["ab ab", "<s>ab ab<s>ab", "[N]ab[N] ab", "ab [L] ab", "b b ab", "b▁b ab", " ab", "ab<s>ab", ""];
        for (text, tokens) in texts.into_iter().zip(expected) {
            assert_eq!(count(&vocabulary, text, true), Ok(tokens), "{text:?} {pre_tokenizer}");
        }
    }
}

#[test]
fn the_front_of_a_prompt_is_not_taken_for_the_same_text_behind_it() {
    let vocabulary = from_json(&with_metaspace(metaspace("first"))).unwrap();
    let part = ".".to_owned() + &"ab ".repeat(300);
    assert_eq!(count(&vocabulary, &part, true), Ok(602));
    assert_eq!(count(&vocabulary, &format!("{part}<s>{part}"), true), Ok(1204));
}

#[test]
fn what_is_at_the_front_must_be_known() {
    let mut config = with_metaspace(metaspace("first"));
    config["normalizer"] = json!({"type": "Strip", "strip_left": true, "strip_right": false});
    let error = from_json(&config).unwrap_err();
    assert!(error.contains("may take the front away"), "{error}");
    config["pre_tokenizer"] = metaspace("always");
    assert_eq!(count(&from_json(&config).unwrap(), "  ab", true), Ok(2));
}

#[test]
fn tokens_that_read_the_same_are_refused_where_some_ask_for_what_is_beside_them() {
    let mut config = with_metaspace(metaspace("never"));
    config["normalizer"] = json!({"type": "Replace", "pattern": {"String": "x"}, "content": "N"});
    config["added_tokens"][0]["content"] = json!("[N]");
    config["added_tokens"][1]["content"] = json!("[x]");
    let error = from_json(&config).unwrap_err();
    assert_eq!(error, "two added tokens read the same once they are normalised");
}
