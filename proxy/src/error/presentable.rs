//! What a backend said, as a client may see it.
//!
//! A backend's words help who sent the request; its paths, addresses and keys are its operator's business.

/// A backend's words without what is only its operator's business: no traceback, path, address or key, and not too long.
pub(super) fn presentable(message: &str) -> String {
    const LONGEST: usize = 600;
    let message = message.split("Traceback").next().unwrap_or_default();
    let mut shown = String::new();
    for word in message.split_whitespace() {
        let bare = word.trim_start_matches(|c: char| c.is_ascii_punctuation() && c != '/');
        let masked = if word.contains("://") {
            "<url>"
        } else if bare.starts_with('/') && bare[1..].contains('/') {
            "<path>"
        } else if bare.starts_with("sk-") || word.contains("EngineCore") {
            "<hidden>"
        } else {
            word
        };
        if shown.len() + masked.len() > LONGEST {
            shown.push_str(" …");
            break;
        }
        if !shown.is_empty() {
            shown.push(' ');
        }
        shown.push_str(masked);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backends_words_are_shown_without_its_insides() {
        let told = "bad value in '/srv/app/x.py' at http://10.0.0.5:8000/v1 (sk-abc123)\nTraceback (most recent call last):";
        assert_eq!(presentable(told), "bad value in <path> at <url> <hidden>");
        let plain = "1 validation error: temperature must be non-negative, got -5.0 tokens/s";
        assert_eq!(presentable(plain), plain);
        assert!(presentable(&"x ".repeat(5000)).len() < 700);
    }
}
