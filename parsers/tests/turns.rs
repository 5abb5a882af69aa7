//! A conversation that is counted turn by turn has the counts of the same conversations counted anew.
//!
//! The templates do what templates of the known families do with what stands around a message: neighbours, the last question, the first
//! user's turn, counters of pictures, calls that are carried on. One counter sees all conversations and all edits of them, so that
//! whatever it remembers of one meets all others. `tests/counting` holds the same for every template of the real models.

use bytes::Bytes;
use serde_json::{Value, json};
use switchback_parsers::prompt::{Normalisation, PromptCounter};
use switchback_parsers::request::ChatRequest;

const TOKENIZER: &str = include_str!("fixtures/tiny/tokenizer.json");
const TINY: &str = include_str!("fixtures/tiny/chat_template.jinja");
const RECORDED: &str = include_str!("fixtures/counts.jsonl");

/// A template, and whether what it prints for a message is the same when more follow.
const TEMPLATES: [(&str, bool); 9] = [
    (TINY, true),
    // The first user's turn has the system's words, and roles must alternate.
    (
        "{%- if messages[0].role == 'system' %}{% set p = messages[0].content + '\n\n' %}{% set rest = messages[1:] %}{% else %}{% set p = '' %}{% set rest = messages %}{% endif %}\
      {%- for m in rest %}{{ '<|im_start|>' + m.role + '\n' + (p if loop.first else '') }}{{ m.content | trim }}{{ '<|im_end|>\n' }}{% endfor %}",
        true,
    ),
    // Results of neighbours share a turn; thoughts are kept behind the last question.
    (
        "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' and not m.content.startswith('a') %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}\
      {% for m in messages %}{% if m.role == 'tool' %}{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}<|im_start|>user{% endif %}\n{{ m.content }}\n\
      {% if loop.last or loop.nextitem.role != 'tool' %}<|im_end|>\n{% endif %}{% else %}<|im_start|>{{ m.role }}\n{% if loop.index0 > ns.last and m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}\
      {{ m.content }}{% for c in m.tool_calls or [] %}{{ '' if loop.first else '\n' }}{{ c.function | tojson }}{% endfor %}<|im_end|>\n{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
        true,
    ),
    // What one message sets, later ones read, and the end too.
    (
        "{% set s = namespace(n=0, tool=false, who='') %}{% for m in messages %}{% if m.role == 'tool' %}{% set s.tool = true %}{% set s.n = s.n + 1 %}[{{ s.n }}]{{ m.content }}\
      {% else %}{{ '<|im_end|>' if s.tool else '' }}{% set s.tool = false %}<|im_start|>{{ s.who }}>{{ m.role }}{{ m.content }}{% set s.who = m.role %}{% endif %}{% endfor %}{{ s.n }}{{ s.tool }}",
        true,
    ),
    // A macro that counts.
    (
        "{% set k = namespace(v=0) %}{% macro say(c, count) %}{% if c is string %}{{ c }}{% else %}{% for p in c %}{% if count %}{% set k.v = k.v + 1 %}{% endif %}#{{ k.v }}{{ p.text }}{% endfor %}{% endif %}{% endmacro %}\
      {{ say(messages[0].content, false) }}{% for m in messages %}<|im_start|>{{ say(m.content, true) | trim }}<|im_end|>{% endfor %}{{ k.v }}",
        true,
    ),
    // No marks between messages, and tools in a loop of their own.
    (
        "{% for t in tools or [] %}{{ loop.index }} {{ t | tojson }}{% endfor %}{% for m in messages %}{{ m.role }}: {{ m.content }}{{ '' if loop.last else '\n' }}{% endfor %}",
        true,
    ),
    // Every message depends on how many there are: nothing is met again.
    (
        "{% for m in messages %}{{ loop.revindex }}/{{ messages | length }}<|im_end|>{{ m.content }}{% endfor %}",
        false,
    ),
    // Looks back in a loop of its own.
    (
        "{% for m in messages %}{% set f = namespace(r='') %}{% for j in range(loop.index0) %}{% set f.r = f.r ~ messages[j].role %}{% endfor %}{{ f.r }}<|im_end|>{{ m.content }}{% endfor %}",
        false,
    ),
    (
        "{% for m in messages %}{{ m.content }}{% if m.role == 'tool' %}{% break %}{% endif %}<|im_end|>{% endfor %}",
        false,
    ),
];

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

#[cfg(test)]
fn load(name: &str, template: &str) -> PromptCounter {
    let folder = std::env::temp_dir().join(format!("switchback-{}-turns-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("tokenizer.json"), TOKENIZER).unwrap();
    std::fs::write(folder.join("chat_template.jinja"), template).unwrap();
    let counter = PromptCounter::load(&folder);
    let _ = std::fs::remove_dir_all(&folder);
    counter.unwrap()
}

/// The conversation after each of its messages, and then with messages moved, changed, added and gone.
#[cfg(test)]
fn versions(body: &Value, dice: &mut Dice) -> Vec<Value> {
    let Some(all) = body["messages"].as_array() else { return vec![] };
    let with = |messages: &[Value]| {
        let mut body = body.clone();
        body["messages"] = json!(messages);
        body
    };
    let mut versions: Vec<Value> = (1..=all.len()).map(|end| with(&all[..end])).collect();
    let mut messages = all.clone();
    for _ in 0..5 {
        let (at, other) = (dice.roll(messages.len()), dice.roll(all.len()));
        match dice.roll(6) {
            0 => drop(messages.remove(at)),
            1 => messages.insert(at, all[other].clone()),
            2 => {
                let with = dice.roll(messages.len());
                messages.swap(at, with);
            }
            3 => {
                messages[at]["role"] =
                    json!(["user", "assistant", "system", "tool", "developer"][dice.roll(5)])
            }
            4 => {
                messages[at]["content"] =
                    json!(["", "a", "\n\n", "<|im_end|>", "<think>x</think>y"][dice.roll(5)])
            }
            _ => {
                messages[at]["content"] = json!([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "http://x/y.png"}}]);
            }
        }
        if messages.is_empty() {
            break;
        }
        versions.push(with(&messages));
    }
    versions
}

#[test]
fn what_is_remembered_of_conversations_changes_no_count() {
    for (at, (template, remembers)) in TEMPLATES.into_iter().enumerate() {
        let counter = load(&format!("{at}"), template);
        let anew = load(&format!("{at}-anew"), template).forgetful();
        let mut dice = Dice(at as u64);
        let mut counted = 0;
        for line in RECORDED.lines().step_by(2) {
            let record: Value = serde_json::from_str(line).unwrap();
            for body in versions(&record["request"], &mut dice) {
                let request = ChatRequest::parse(Bytes::from(body.to_string())).unwrap();
                for engine in [Normalisation::Vllm, Normalisation::LlamaCpp] {
                    let (ours, whole) =
                        (counter.count_chat(&request, engine), anew.count_chat(&request, engine));
                    assert_eq!(ours, whole, "template {at}, {engine:?}: {body}");
                    counted += usize::from(ours.is_ok());
                }
            }
        }
        assert_eq!(counter.remembers(Normalisation::Vllm), remembers, "template {at}");
        assert!(!anew.remembers(Normalisation::Vllm));
        assert!(counted > 300, "template {at}: {counted}");
    }
}
