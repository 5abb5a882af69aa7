//! What a template can do, found by rendering small conversations with it.
//!
//! vLLM and llama.cpp both look at the template before they use it and prepare requests to fit: vLLM reads its syntax tree, llama.cpp
//! watches which values it touches. Here the rendered text tells: a marker that went in comes out, or it does not.

use serde_json::{Map, Value as Json, json};

use super::normalise::to_value;
use super::template::Template;

/// What the engines want to know of a template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Traits {
    /// Takes content as a list of parts.
    pub(super) list_content: bool,
    /// vLLM believes so, from the template's syntax.
    pub(super) list_in_vllm: bool,
    /// Takes content as a string.
    pub(super) string_content: bool,
    /// Prints system messages.
    pub(super) system_role: bool,
    /// Takes the arguments of a call as a mapping.
    pub(super) object_arguments: bool,
    /// Names the role `developer`.
    pub(super) names_developer: bool,
    /// Is of gpt-oss's kind.
    pub(super) names_channels: bool,
    /// Names the variables in which llama.cpp gives the date.
    pub(super) names_date: bool,
    /// Has a switch for thinking.
    pub(super) thinking: bool,
    /// Knows of thinking, and not as Qwen's templates do, which were measured: ChatML, and no switch in the system prompt.
    pub(super) thinks_unlike_qwen: bool,
    /// How llama.cpp opens the assistant's turn again to continue it.
    pub(super) reopening: Reopening,
}

/// What llama.cpp puts before an assistant message that is to be continued.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reopening {
    /// The whole opening, where llama.cpp knows it by heart; else it is the generation prompt up to the mark of thinking.
    pub(super) opening: Option<&'static str>,
    /// Before and behind the reasoning; empty where the template has none.
    pub(super) around_reasoning: Option<(String, String)>,
}

const SAID: &str = "ASIDE-5317-ASIDE";
const THOUGHT: &str = "MUSED-8024-MUSED";

/// Probes a template.
pub(super) fn traits(template: &Template) -> Traits {
    let source = template.source();
    let with_list = render(template, json!([user(json!([{"type": "text", "text": SAID}]))]), json!({}));
    let with_string = render(template, json!([user(json!(SAID))]), json!({}));
    let with_system =
        render(template, json!([{"role": "system", "content": SAID}, user(json!("hi"))]), json!({}));
    // A list that is printed as such is not taken.
    let list_content = with_list
        .is_some_and(|text| text.contains(SAID) && !text.contains("'type'") && !text.contains("\"type\""));
    Traits {
        list_content,
        list_in_vllm: template.wants_lists(),
        string_content: with_string.is_some_and(|text| text.contains(SAID) || !list_content),
        system_role: with_system.is_some_and(|text| text.contains(SAID)),
        object_arguments: takes_object_arguments(template),
        names_developer: source.contains("\"developer\"") || source.contains("'developer'"),
        names_channels: source.contains("<|channel|>"),
        names_date: source.contains("date_string") || source.contains("datetime"),
        thinking: has_thinking_switch(template),
        thinks_unlike_qwen: source.contains("think")
            && (!source.contains("<|im_start|>") || source.contains("/no_think")),
        reopening: reopening(template),
    }
}

fn user(content: Json) -> Json {
    json!({"role": "user", "content": content})
}

fn render(template: &Template, messages: Json, more: Json) -> Option<String> {
    let mut context = Map::new();
    context.insert("messages".into(), messages);
    context.insert("bos_token".into(), "".into());
    context.insert("eos_token".into(), "".into());
    context.insert("add_generation_prompt".into(), true.into());
    if let Json::Object(more) = more {
        context.extend(more);
    }
    template.render_small(to_value(&context)).ok().map(|rendered| rendered.text)
}

fn takes_object_arguments(template: &Template) -> bool {
    let tool = json!({"type": "function", "function": {"name": "tool1", "description": "does", "parameters": {
        "type": "object", "properties": {"arg": {"type": "string", "description": "that"}}, "required": ["arg"]}}});
    let call = json!({"id": "call00001", "type": "function",
        "function": {"name": "tool1", "arguments": {"arg": SAID}}});
    let messages = json!([
        user(json!("hi")),
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "result", "tool_call_id": "call00001"},
        {"role": "assistant", "content": "so"},
        user(json!("hi")),
    ]);
    render(template, messages, json!({"tools": [tool]})).is_some_and(|text| text.contains(SAID))
}

/// What the last turn of a reply with reasoning looks like.
fn with_reasoning(template: &Template) -> Option<String> {
    let reply = json!({"role": "assistant", "content": SAID, "reasoning_content": THOUGHT});
    let more = json!({"add_generation_prompt": false, "enable_thinking": true});
    render(template, json!([user(json!("hi")), reply]), more).filter(|text| text.contains(THOUGHT))
}

fn has_thinking_switch(template: &Template) -> bool {
    let source = template.source();
    if is_qwen_coder(source) {
        return source.contains("<think>");
    }
    let opened = |thinking: bool| {
        render(template, json!([user(json!("hi"))]), json!({"enable_thinking": thinking})).unwrap_or_default()
    };
    with_reasoning(template).is_some() || drops_thoughts(source) || adds_mark(&opened(false), &opened(true))
}

/// Whether one of two prompts ends with a mark that the other has not: `<think>` to open thoughts, or both marks to shut them.
fn adds_mark(without: &str, with: &str) -> bool {
    let common = without.bytes().zip(with.bytes()).take_while(|(a, b)| a == b).count();
    let rest = |text: &str| text.as_bytes().get(common..).unwrap_or_default().trim_ascii().to_vec();
    match (rest(without).is_empty(), rest(with).is_empty()) {
        (true, true) => false,
        (true, false) | (false, true) => true,
        // The prompts differ at their front as well (SmolLM3): does one go on where the other ends?
        (false, false) => {
            let goes_on = |shorter: &str, longer: &str| {
                let tail = shorter.get(shorter.len().saturating_sub(64)..);
                let end = tail.and_then(|tail| Some(longer.rfind(tail)? + tail.len()));
                let more = end.and_then(|end| longer.get(end..)).unwrap_or_default().trim();
                more.starts_with(['<', '[']) && more.ends_with(['>', ']'])
            };
            goes_on(with, without) || goes_on(without, with)
        }
    }
}

/// llama.cpp's own handler for Qwen3-Coder and Qwen3.5 and their kin.
fn is_qwen_coder(source: &str) -> bool {
    ["<tool_call>", "<function=", "<parameter="].iter().all(|mark| source.contains(mark))
        && !source.contains("'<tool_call><function=' ~ tool_call.name ~ '>'")
}

fn reopening(template: &Template) -> Reopening {
    let source = template.source();
    if is_qwen_coder(source) {
        let thinks = source.contains("<think>");
        return Reopening {
            opening: Some("<|im_start|>assistant\n"),
            around_reasoning: thinks.then(|| ("<think>\n".into(), "\n</think>\n\n".into())),
        };
    }
    let rendered = with_reasoning(template);
    let seen = rendered.as_deref().and_then(|text| {
        let (before, behind) = text.split_once(THOUGHT)?;
        Some((last_mark(before)?.to_owned(), first_mark(behind)?.to_owned()))
    });
    let around_reasoning =
        seen.or_else(|| drops_thoughts(source).then(|| ("<think>".into(), "</think>".into())));
    Reopening { opening: None, around_reasoning }
}

/// Qwen's first thinking templates: they only cut thoughts out of the content.
fn drops_thoughts(source: &str) -> bool {
    source.contains("content.split('</think>')") && !source.contains("reasoning_content")
}

/// The `<mark>` or `[mark]` at the end of `text`, with the white space behind it.
fn last_mark(text: &str) -> Option<&str> {
    let trimmed = text.trim_end();
    let open = match trimmed.chars().next_back()? {
        '>' => trimmed.rfind('<')?,
        ']' => trimmed.rfind('[')?,
        _ => return None,
    };
    text.get(open..)
}

/// The `<mark>` or `[mark]` at the front of `text`, with the white space on both sides.
fn first_mark(text: &str) -> Option<&str> {
    let start = text.len() - text.trim_start().len();
    let close = match text[start..].chars().next()? {
        '<' => text[start..].find('>')?,
        '[' => text[start..].find(']')?,
        _ => return None,
    };
    let behind = start + close + 1;
    let rest = &text[behind..];
    text.get(..behind + rest.len() - rest.trim_start().len())
}

#[cfg(test)]
mod tests {
    use super::{Reopening, Traits, traits};
    use crate::prompt::normalise::Normalisation;
    use crate::prompt::template::Template;

    fn of(source: &str) -> Traits {
        traits(&Template::compile(source, Normalisation::LlamaCpp).unwrap())
    }

    #[test]
    fn a_plain_template_takes_strings_and_no_tools() {
        let plain = of("{% for m in messages %}{{ m.role + ': ' + m.content }}{% endfor %}");
        let expected = Traits { string_content: true, system_role: true, ..Traits::default() };
        assert_eq!(plain, expected);
    }

    #[test]
    fn a_template_that_walks_through_parts_takes_lists() {
        let both = of(
            "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% endfor %}",
        );
        assert!(both.list_content && both.string_content);
        let only = of("{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}");
        assert!(only.list_content && !only.string_content);
    }

    #[test]
    fn a_template_that_prints_calls_takes_their_arguments() {
        let tools = of(
            "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}",
        );
        assert!(tools.object_arguments);
    }

    #[test]
    fn marks_of_thinking_are_seen_where_they_are_printed() {
        let thinking = of(
            "{% for m in messages %}<|{{ m.role }}|>{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }}{% endfor %}",
        );
        let around = Some(("<think>\n".into(), "\n</think>\n\n".into()));
        assert_eq!(
            (thinking.thinking, thinking.reopening),
            (true, Reopening { opening: None, around_reasoning: around })
        );
        let shut = of(
            "{{ messages[0].content }}{% if add_generation_prompt %}a:{% if enable_thinking is false %}<think></think>{% endif %}{% endif %}",
        );
        assert!(shut.thinking);
        assert!(!of("{{ messages[0].content }}").thinking);
    }
}
