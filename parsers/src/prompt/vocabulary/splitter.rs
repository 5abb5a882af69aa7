//! How a vocabulary cuts text into words before it merges bytes into tokens.
//!
//! GGUF files name the way (`tokenizer.ggml.pre`) and leave the patterns to llama.cpp, so they stand here, as its `llama-vocab.cpp`
//! (b11434) has them. tokenizer.json files carry their patterns; the library's reader refuses to run those that it has no scanner
//! for, so they are built here as well.
//!
//! An unknown kind must never fall back to another one: a wrong split is a wrong count that looks exact.

use serde_json::Value as Json;
use tokenizers::SplitDelimiterBehavior::{
    self, Contiguous, Isolated, MergedWithNext, MergedWithPrevious, Removed,
};
use tokenizers::pipeline::PipelinePreTokenizer as Splitter;
use tokenizers::pre_tokenizers::delimiter::CharDelimiterSplit;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::fixed_length::FixedLength;
use tokenizers::pre_tokenizers::punctuation::Punctuation;
use tokenizers::pre_tokenizers::sequence::PipelineSequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::pre_tokenizers::unicode_scripts::UnicodeScripts;
use tokenizers::pre_tokenizers::whitespace::{Whitespace, WhitespaceSplit};

/// How llama.cpp treats a kind of byte-level BPE.
pub(super) struct Kind {
    /// The splits, in order.
    pub(super) splitter: Splitter,
    /// A word that is a token is that token, whatever the merges say.
    pub(super) ignore_merges: bool,
    /// Whether text begins with the BOS token when the file does not say.
    pub(super) adds_bos: bool,
    /// Whether the model's tokenizer.json, which vLLM uses, normalises to NFC. llama.cpp never does.
    pub(super) nfc: bool,
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// With the very line breaks that the library's scanner knows it by.
const DEEPSEEK3: [&str; 3] = [
    r"\p{N}{1,3}",
    "[\u{4E00}-\u{9FA5}\u{3040}-\u{309F}\u{30A0}-\u{30FF}]+",
    concat!(
        r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^"##,
        "\r\n",
        r"\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[",
        "\r\n",
        r"]*|\s*[",
        "\r\n",
        r"]+|\s+(?!\S)|\s+",
    ),
];

/// The kind that `tokenizer.ggml.pre` names.
///
/// # Errors
/// A kind that is not known, by its name.
pub(super) fn of_gguf(pre: &str) -> Result<Kind, String> {
    let (splitter, ignore_merges, adds_bos, nfc) = match pre {
        "gpt-2" | "phi-2" | "jina-es" | "jina-de" | "gigachat" | "a.x-4.0" | "mellum" | "modern-bert"
        | "exaone4" | "mpt" | "olmo" | "jais" | "trillion" | "granite-docling" => {
            (one(GPT2)?, false, false, false)
        }
        "smollm" | "starcoder" | "refact" | "command-r" | "codeshell" | "exaone" | "minerva-7b"
        | "mellum2" => (all([Splitter::Digits(Digits::new(true)), one(GPT2)?]), false, false, false),
        "qwen2" | "deepseek-r1-qwen" | "kormo" | "f2llmv2" | "megrez" => (one(QWEN2)?, false, false, true),
        "stablelm2" | "hunyuan" | "solar-open" | "grok-2" => (one(QWEN2)?, false, false, false),
        "qwen35" => (one(QWEN35)?, false, false, true),
        "llama3" | "llama-v3" | "llama-bpe" | "falcon3" | "falcon-h1" | "pixtral" | "midm-2.0" | "lfm2"
        | "jina-v5-nano" => (one(LLAMA3)?, true, true, false),
        "dbrx" | "smaug-bpe" | "chatglm-bpe" => (one(LLAMA3)?, false, false, false),
        "glm4" | "glm5" => (one(LLAMA3)?, true, false, false),
        "deepseek-v3" | "hunyuan-dense" | "joyai-llm" | "hy_v4" => {
            let [numbers, han, rest] = DEEPSEEK3;
            (all([one(numbers)?, one(han)?, one(rest)?]), false, false, false)
        }
        unknown => {
            return Err(format!(
                "pre-tokenizer kind {unknown} of this gguf file is not known: give the model's tokenizer.json instead"
            ));
        }
    };
    Ok(Kind { splitter, ignore_merges, adds_bos, nfc })
}

/// The pre-tokenizer of a tokenizer.json in the library's canonical form.
///
/// # Errors
/// A component that is not known, by its name, or a pattern that does not compile.
pub(super) fn of_json(config: &Json) -> Result<Splitter, String> {
    if config.is_null() {
        return Ok(Splitter::None);
    }
    let text = |key: &str| config.get(key).and_then(Json::as_str);
    let flag = |key: &str| config.get(key).and_then(Json::as_bool).unwrap_or(false);
    Ok(match text("type").unwrap_or_default() {
        "Sequence" => {
            let parts = config.get("pretokenizers").and_then(Json::as_array).map(Vec::as_slice);
            let parts: Result<Vec<_>, _> = parts.unwrap_or_default().iter().map(of_json).collect();
            Splitter::Sequence(PipelineSequence::new(parts?))
        }
        "Split" => {
            let pattern = config.get("pattern").unwrap_or(&Json::Null);
            let pattern = match (pattern.get("String"), pattern.get("Regex")) {
                (Some(Json::String(literal)), _) => SplitPattern::String(literal.clone()),
                (_, Some(Json::String(regex))) => SplitPattern::Regex(regex.clone()),
                _ => return Err("a Split of the pre-tokenizer has no pattern".into()),
            };
            split(pattern, behavior(text("behavior").unwrap_or("Isolated"))?, flag("invert"))?
        }
        "Digits" => Splitter::Digits(Digits::new(flag("individual_digits"))),
        "Punctuation" => {
            Splitter::Punctuation(Punctuation::new(behavior(text("behavior").unwrap_or("Isolated"))?))
        }
        "Whitespace" => Splitter::Whitespace(Whitespace),
        "WhitespaceSplit" => Splitter::WhitespaceSplit(WhitespaceSplit),
        "UnicodeScripts" => Splitter::UnicodeScripts(UnicodeScripts::new()),
        "CharDelimiterSplit" => match text("delimiter").and_then(|d| d.chars().next()) {
            Some(delimiter) => Splitter::Delimiter(CharDelimiterSplit::new(delimiter)),
            None => return Err("a CharDelimiterSplit of the pre-tokenizer has no delimiter".into()),
        },
        "FixedLength" => match config.get("length").and_then(Json::as_u64) {
            Some(length @ 1..) => Splitter::FixedLength(FixedLength::new(length as usize)),
            _ => return Err("a FixedLength of the pre-tokenizer has no length".into()),
        },
        unknown => return Err(format!("pre-tokenizer {unknown} is not known")),
    })
}

fn behavior(name: &str) -> Result<SplitDelimiterBehavior, String> {
    Ok(match name {
        "Isolated" => Isolated,
        "Removed" => Removed,
        "MergedWithPrevious" => MergedWithPrevious,
        "MergedWithNext" => MergedWithNext,
        "Contiguous" => Contiguous,
        unknown => return Err(format!("split behavior {unknown} of the pre-tokenizer is not known")),
    })
}

fn one(pattern: &str) -> Result<Splitter, String> {
    split(SplitPattern::Regex(pattern.into()), Isolated, false)
}

fn all<const N: usize>(parts: [Splitter; N]) -> Splitter {
    Splitter::Sequence(PipelineSequence::new(parts.into()))
}

pub(super) fn split(
    pattern: SplitPattern,
    behavior: SplitDelimiterBehavior,
    invert: bool,
) -> Result<Splitter, String> {
    let pattern = match pattern {
        // 1.0.0-rc.3 takes these for the pattern with `\p{N}{1,3}` and cuts numbers into threes. A group around it makes it
        // another pattern to the library, and none to the regex engine.
        SplitPattern::Regex(regex) if regex.contains(r"|\p{N}+|") => {
            SplitPattern::Regex(regex.replace(r"|\p{N}+|", r"|(?:\p{N}+)|"))
        }
        SplitPattern::Regex(regex) if regex.contains(r"|\p{N}{1,2}|") => {
            SplitPattern::Regex(regex.replace(r"|\p{N}{1,2}|", r"|(?:\p{N}{1,2})|"))
        }
        other => other,
    };
    Split::new(pattern, behavior, invert)
        .and_then(Split::canonicalized_for_pipeline)
        .map(Splitter::Split)
        .map_err(|error| format!("a pattern of the pre-tokenizer does not compile: {error}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokenizers::pipeline::{PreTokenizer, PreTokenizerScratch};

    use super::{LLAMA3, Splitter, of_gguf, of_json};

    fn words(splitter: &Splitter, text: &str) -> Vec<String> {
        let mut spans = Vec::new();
        splitter.pre_tokenize(text, &mut PreTokenizerScratch::default(), &mut spans).unwrap();
        spans.iter().map(|span| text[span.range()].to_owned()).collect()
    }

    #[test]
    fn each_kind_cuts_numbers_its_own_way() {
        for (pre, expected) in [
            ("gpt-2", vec!["a", " 12345", " it", "'s"]),
            ("smollm", vec!["a", " ", "1", "2", "3", "4", "5", " it", "'s"]),
            ("qwen2", vec!["a", " ", "1", "2", "3", "4", "5", " it", "'s"]),
            ("llama-bpe", vec!["a", " ", "123", "45", " it", "'s"]),
            ("deepseek-v3", vec!["a", " ", "123", "45", " it", "'s"]),
        ] {
            assert_eq!(words(&of_gguf(pre).unwrap().splitter, "a 12345 it's"), expected, "{pre}");
        }
    }

    #[test]
    fn qwen35_keeps_marks_with_their_letters_and_qwen2_does_not() {
        let text = "नमस्ते";
        assert_eq!(words(&of_gguf("qwen35").unwrap().splitter, text).len(), 1);
        assert!(words(&of_gguf("qwen2").unwrap().splitter, text).len() > 1);
    }

    #[test]
    fn an_unknown_kind_is_refused_by_its_name() {
        let error = of_gguf("klingon").err().unwrap();
        assert!(error.contains("kind klingon of this gguf file is not known"), "{error}");
        let error = of_json(&json!({"type": "Klingon"})).unwrap_err();
        assert_eq!(error, "pre-tokenizer Klingon is not known");
    }

    #[test]
    fn a_number_rule_of_any_length_is_not_taken_for_one_of_three() {
        for (rule, expected) in [(r"\p{N}+", vec!["12345"]), (r"\p{N}{1,2}", vec!["12", "34", "5"])] {
            let pattern = LLAMA3.replace(r"\p{N}{1,3}", rule);
            let config = json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"});
            assert_eq!(words(&of_json(&config).unwrap(), "12345"), expected, "{rule}");
        }
    }

    #[test]
    fn a_pattern_without_a_scanner_runs_all_the_same() {
        let config = json!({"type": "Split", "pattern": {"Regex": "\\w+|\\W"}, "behavior": "Isolated", "invert": false});
        assert_eq!(words(&of_json(&config).unwrap(), "ab, c"), ["ab", ",", " ", "c"]);
    }
}
