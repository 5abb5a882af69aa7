//! In which family a backend's model writes its calls, by what is known of the backend: the parser that its engine was started
//! with, or the chat template that it renders. Both speak of the same thing: what the model was trained on.
//!
//! It is a hint and never a gate: models write in a neighbour's dialect. A model's name tells nothing here, since fine-tunes keep
//! names and change templates.

/// Parsers' names as vLLM, SGLang and others have them, without `_` and `-`.
const PARSERS: &[(&str, &[&str])] = &[
    ("hermes", &["hermes", "qwen", "qwen25", "qwen3json", "ernie45", "granite4", "trinity"]),
    ("qwen_xml", &["qwen3coder", "qwen3xml", "mimo", "step3p5"]),
    ("glm", &["glm", "glm45", "glm47", "ling3", "poolsidev1"]),
    ("gemma4", &["gemma4"]),
    ("functiongemma", &["functiongemma"]),
    ("harmony", &["openai", "gptoss", "harmony"]),
    ("mistral", &["mistral"]),
    ("deepseek", &["deepseekv3", "deepseekv31", "step3"]),
    ("deepseek_dsml", &["deepseekv32", "deepseekv4", "deepseekv41"]),
    ("kimi_k2", &["kimik2"]),
    ("kimi_k3", &["kimik3"]),
    ("minimax_m2", &["minimaxm2"]),
    ("minimax_m3", &["minimaxm3"]),
    ("jamba", &["jamba", "hunyuana13b", "minimax"]),
    ("seed_oss", &["seedoss"]),
    ("llama3_json", &["llama3", "llama3json", "llama4json"]),
    ("llama4", &["llama4pythonic"]),
    ("pythonic", &["pythonic"]),
    ("invoke_xml", &["olmo3"]),
    ("granite", &["granite"]),
    ("granite20b", &["granite20bfc"]),
    ("internlm", &["internlm", "interns1"]),
    ("longcat", &["longcat"]),
    ("lfm2", &["lfm2"]),
    ("gigachat", &["gigachat3"]),
    ("plamo", &["plamo3"]),
    ("horizon", &["k2horizon"]),
    ("apertus", &["apertus"]),
    ("command_a", &["coherecommand", "coherecommand3", "coherecommand4"]),
    ("dots", &["dots"]),
    ("atem", &["museglimmer"]),
    ("inkling", &["inkling"]),
    ("phi4", &["phi4minijson"]),
    ("bare_json", &["xlam"]),
];

/// What only the templates of a family have; of those that share tags the more special one first.
const TEMPLATES: &[(&str, &[&str])] = &[
    ("harmony", &["<|channel|>", "<|message|>"]),
    ("deepseek_dsml", &["DSML｜"]),
    ("deepseek", &["<｜tool▁calls▁begin｜>"]),
    ("kimi_k3", &["<|open|>", "<|sep|>"]),
    ("kimi_k2", &["<|tool_calls_section_begin|>"]),
    ("minimax_m3", &["]<]minimax[>["]),
    ("minimax_m2", &["<minimax:tool_call>"]),
    ("seed_oss", &["<seed:tool_call>"]),
    ("gemma4", &["<|tool_call>", "<tool_call|>"]),
    ("functiongemma", &["<start_function_call>"]),
    ("command_a", &["<|START_ACTION|>"]),
    ("lfm2", &["<|tool_call_start|>"]),
    ("apertus", &["<|tools_prefix|>"]),
    ("internlm", &["<|action_start|>"]),
    ("longcat", &["<longcat_tool_call>"]),
    ("nemotron", &["<TOOLCALL>"]),
    ("functionary", &[">>>all"]),
    ("plamo", &["<|plamo:begin_tool_request"]),
    ("horizon", &["<ifm|tool_call>"]),
    ("phi4", &["functools["]),
    ("mistral", &["[TOOL_CALLS]"]),
    ("glm", &["<arg_key>"]),
    ("qwen_xml", &["<tool_call>", "<function="]),
    ("hermes", &["<tool_call>"]),
    ("llama3_json", &["<|python_tag|>"]),
];

/// The family, one of [`super::format_names`], for which an engine's tool parser of this name was written; none if the name is
/// not known. Case, `_` and `-` do not matter: `glm45`, `qwen3_coder`, `minimax-m2`.
pub fn family_of_parser(name: &str) -> Option<&'static str> {
    let plain: String =
        name.chars().filter(|c| !matches!(c, '_' | '-')).flat_map(char::to_lowercase).collect();
    let row = PARSERS.iter().find(|(_, names)| names.contains(&plain.as_str()));
    row.map(|(family, _)| *family)
}

/// The family, one of [`super::format_names`], whose markers a chat template writes; none if it writes none that are known.
pub fn family_of_template(template: &str) -> Option<&'static str> {
    let row = TEMPLATES.iter().find(|(_, marks)| marks.iter().all(|mark| template.contains(mark)));
    row.map(|(family, _)| *family)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool_call::format_names;

    #[test]
    fn each_family_is_one_that_can_be_looked_for() {
        let known = format_names();
        for (family, _) in PARSERS.iter().chain(TEMPLATES) {
            assert!(known.contains(family), "{family}");
        }
    }

    #[test]
    fn a_parser_tells_its_family_in_any_spelling() {
        for (parser, family) in [
            ("qwen3_coder", Some("qwen_xml")),
            ("minimax-m2", Some("minimax_m2")),
            ("GLM45", Some("glm")),
            ("openai", Some("harmony")),
            ("gpt-oss", Some("harmony")),
            ("jinja(native)", None),
            ("", None),
        ] {
            assert_eq!(family_of_parser(parser), family, "{parser}");
        }
    }

    #[test]
    fn a_template_tells_its_family_by_the_markers_that_it_writes() {
        for (template, family) in [
            (
                "{{- '<tool_call>\\n' }}{{- '{\"name\": \"' + tool_call.name }}{{- '</tool_call>' }}",
                Some("hermes"),
            ),
            ("{{- '<tool_call>\\n<function=' + name + '>\\n' }}<parameter=", Some("qwen_xml")),
            ("<tool_call>{{ tc.name }}<arg_key>{{ k }}</arg_key><arg_value>", Some("glm")),
            ("{{ '<|start|>assistant<|channel|>final<|message|>' }}", Some("harmony")),
            ("{{- \"[TOOL_CALLS]\" }}", Some("mistral")),
            ("{% for m in messages %}<|im_start|>{{ m.role }}{% endfor %}", None),
        ] {
            assert_eq!(family_of_template(template), family, "{template}");
        }
    }
}
