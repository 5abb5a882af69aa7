//! What `check` says of loading: who does it, and how each backend gets onto its cards.
//!
//! Nothing is loaded for it. A command whose program is not there is a caution: the file may be meant for another machine.

use std::sync::Arc;

use crate::app::App;
use crate::backend::Backend;
use crate::cli::say;
use crate::config::Way;
use crate::loader::cannot_start;

/// The loader, and whether it answers.
pub(super) fn tell(app: &App) {
    let Some(loader) = &app.loader else { return };
    let (rules, limit) = loader.rules();
    say(format_args!(
        "loads by {}: a backend stays for {:?}, a load may take {limit:?}, a request waits for {:?}",
        loader.name(),
        rules.min_residency,
        rules.wait
    ));
    if let Some(trouble) = loader.last_trouble() {
        say(format_args!("    caution: {}: {}", trouble.said, trouble.detail));
    }
    say("");
}

/// How a backend is loaded.
pub(super) fn tell_backend(backend: &Arc<Backend>) {
    let Some(load) = &backend.config.load else { return };
    let cards: Vec<String> = load.cards.iter().map(ToString::to_string).collect();
    let cards = if cards.is_empty() {
        "alone on the rig".to_owned()
    } else {
        format!("on cards {}", cards.join(", "))
    };
    let how = match &load.way {
        Way::Slug { slug, .. } => format!("slug {slug}"),
        Way::Model { model, .. } => format!("the usual slug of model {model}"),
        Way::Swap { model } => format!("model {model}"),
        Way::Command(commands) => commands.start.join(" "),
    };
    say(format_args!("    loaded {cards}, by {how}, expected within {:?}", load.time));
    if let Way::Command(commands) = &load.way {
        let all = [Some(&commands.start), commands.stop.as_ref(), commands.check.as_ref()];
        for program in all.into_iter().flatten().filter_map(|words| words.first()) {
            if let Some(why) = cannot_start(program) {
                say(format_args!("    caution: {why} (on this machine)"));
            }
        }
    }
}
