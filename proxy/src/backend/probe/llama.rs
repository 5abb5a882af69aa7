//! llama.cpp's server, its forks, and ik_llama: `/props`, which HTTP threads answer beside a running prefill.
//!
//! Must never ask `/slots` or `/metrics` of a backend that is not doubted: they go through the queue of the computing thread,
//! and in older builds wait for a whole batch. Sources: llama.cpp build 11434 (`server-context.cpp`), ik_llama.cpp (`examples/server/server.cpp`).

use std::sync::Arc;

use serde_json::Value;
use switchback_parsers::tool_call::family_of_template;

use super::ask::Ask;
use super::found::{ChatTemplate, Found, Load, ReasoningField, TemplateCaps};
use super::list::text;

/// Fills in what the server tells of itself.
pub(super) async fn describe(ask: &mut Ask<'_>, is_ik: bool, found: &mut Found) {
    found.reasoning = Some(ReasoningField::ReasoningContent);
    if is_ik {
        // Its list gives the total; without a number of slots that is only a bound.
        found.window_at_most = found.window.take();
    }
    let Some(props) = ask.json("/props").await else { return };
    read(&props, is_ik, found);
}

/// How busy it is; for a server whose answers have been silent for long. One that computes a long batch may not say.
pub(super) async fn load(ask: &mut Ask<'_>) -> Option<Load> {
    let slots = ask.json("/slots").await?;
    let busy = |slot: &&Value| slot.get("is_processing").and_then(Value::as_bool) == Some(true);
    let slots = slots.as_array().filter(|slots| !slots.is_empty())?;
    // The computing thread itself has answered: what it makes steps in need not be asked.
    let running = slots.iter().filter(busy).count() as u64;
    Some(Load { running, waiting: 0, kv_usage: None, steps: None })
}

fn read(props: &Value, is_ik: bool, found: &mut Found) {
    let positive = |value: Option<&Value>| value.and_then(Value::as_u64).filter(|number| *number > 0);
    found.version = text(props, "build_info").map(str::to_owned);
    found.slots = positive(props.get("total_slots"));
    found.images = props.pointer("/modalities/vision").and_then(Value::as_bool);
    found.template = props.get("chat_template_caps").and_then(template);
    let source = |name: &str| text(props, name).filter(|source| !source.is_empty()).map(Arc::from);
    found.chat_template = source("chat_template")
        .map(|plain| ChatTemplate { source: plain, with_tools: source("chat_template_tool_use") });
    // A parser is derived from the template; one that knows no tools drops them.
    found.tool_parser = found.template.map(|template| template.tools);
    let written = ["chat_template_tool_use", "chat_template"].into_iter().filter_map(|key| text(props, key));
    found.family = written.into_iter().find_map(family_of_template);
    if is_ik {
        let total = found.window_at_most.or_else(|| positive(props.get("n_ctx")));
        found.pool = total;
        found.pool_shared = Some(false);
        found.window = total.zip(found.slots).map(|(total, slots)| total / slots);
        found.window_at_most = total.filter(|_| found.window.is_none());
        return;
    }
    found.window = found.window.or_else(|| positive(props.pointer("/default_generation_settings/n_ctx")));
    found.pool = found.window.filter(|_| found.slots.is_some());
    found.pool_shared = (found.slots == Some(1)).then_some(false);
}

fn template(caps: &Value) -> Option<TemplateCaps> {
    let can = |name: &str| caps.get(name).and_then(Value::as_bool);
    Some(TemplateCaps {
        tools: can("supports_tools")?,
        tool_calls: can("supports_tool_calls").unwrap_or(false),
        parallel_tool_calls: can("supports_parallel_tool_calls").unwrap_or(false),
        system_role: can("supports_system_role").unwrap_or(true),
    })
}
