//! Prometheus' text format, as far as a probe reads it: name, labels, value, one sample a line.
//!
//! What is no sample is skipped. Must never fail on a page that is cut or is something else.

/// One sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample<'a> {
    pub(super) name: &'a str,
    labels: &'a str,
    pub(super) value: f64,
}

/// The samples of a page.
pub(super) fn samples(page: &str) -> impl Iterator<Item = Sample<'_>> {
    page.lines().filter_map(|line| {
        let line = line.trim();
        // Label values may hold any character; value and time after them hold no brace.
        let (name, labels, rest) = match line.split_once('{') {
            Some((name, more)) => {
                let (labels, rest) = more.rsplit_once('}')?;
                (name, labels, rest)
            }
            None => {
                let (name, rest) = line.split_once(char::is_whitespace)?;
                (name, "", rest)
            }
        };
        let value = rest.split_whitespace().next()?.parse().ok()?;
        (!name.starts_with('#')).then_some(Sample { name: name.trim(), labels, value })
    })
}

impl Sample<'_> {
    /// The value of a number of things.
    pub(super) fn count(&self) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturates, and what is no number becomes 0"
        )]
        let count = self.value as u64;
        count
    }

    /// A label's value, unescaped.
    pub(super) fn label(&self, name: &str) -> Option<String> {
        let mut rest = self.labels;
        loop {
            let (key, more) = rest.split_once("=\"")?;
            let mut value = String::new();
            let mut escaped = false;
            let mut end = None;
            for (at, c) in more.char_indices() {
                match c {
                    'n' if escaped => value.push('\n'),
                    _ if escaped => value.push(c),
                    '\\' => {
                        escaped = true;
                        continue;
                    }
                    '"' => {
                        end = Some(at);
                        break;
                    }
                    _ => value.push(c),
                }
                escaped = false;
            }
            if key.trim_start_matches([',', ' ']) == name {
                return Some(value);
            }
            rest = &more[end? + 1..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_labels_and_values_are_read_whatever_the_labels_hold() {
        let page = "# HELP a {x} 1\n# TYPE a gauge\na 2\nb{model=\"a\\\"},{b\",size=\"7\"} 3.5 1700000000\nc{x=\"1\" 4\n<html>\nd NaN";
        let read: Vec<_> = samples(page).map(|sample| (sample.name, sample.label("size"))).collect();
        assert_eq!(read, [("a", None), ("b", Some("7".to_owned())), ("d", None)]);
        assert_eq!(samples(page).map(|sample| sample.count()).collect::<Vec<_>>(), [2, 3, 0]);
        assert_eq!(samples(page).nth(1).unwrap().label("model").unwrap(), "a\"},{b");
    }
}
