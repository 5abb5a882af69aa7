//! Durations and sizes as people write them: `"30s"`, `"5m"`, `"64MiB"`, or a plain number (seconds, bytes).
//!
//! Refuses what it does not know with an example of what it does; never guesses a unit. No time is so long that a clock could
//! not show when it is over.

use std::fmt;
use std::time::Duration;

use serde::de::{self, Deserializer, Visitor};

/// Ten years: for ever, as far as anybody waits.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// `"250ms"`, `"30s"`, `"5m"`, `"2h"`, or seconds as a number.
pub(super) fn duration<'de, D: Deserializer<'de>>(input: D) -> Result<Duration, D::Error> {
    input.deserialize_any(Words {
        expects: "a duration such as \"250ms\", \"30s\", \"5m\" or \"2h\", at most \"87600h\"",
        read: read_duration,
    })
}

/// The same where a key may be absent.
pub(super) fn some_duration<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Duration>, D::Error> {
    duration(input).map(Some)
}

/// `"512KiB"`, `"64MiB"`, `"1GiB"`, the same with `KB`, `MB`, `GB` (thousands), or bytes as a number.
pub(super) fn size<'de, D: Deserializer<'de>>(input: D) -> Result<usize, D::Error> {
    input.deserialize_any(Words {
        expects: "a size such as \"512KiB\", \"64MiB\" or \"1GiB\"",
        read: read_size,
    })
}

fn read_duration(number: f64, unit: &str) -> Option<Duration> {
    let seconds = match unit {
        "ms" => 0.001,
        "s" | "" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number * seconds).ok().filter(|time| *time <= LONGEST)
}

fn read_size(number: f64, unit: &str) -> Option<usize> {
    let bytes: u32 = match unit {
        "B" | "" => 1,
        "KB" => 1_000,
        "KiB" => 1 << 10,
        "MB" => 1_000_000,
        "MiB" => 1 << 20,
        "GB" => 1_000_000_000,
        "GiB" => 1 << 30,
        _ => return None,
    };
    let total = number * f64::from(bytes);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked against the range just before"
    )]
    (0.0..=1e15).contains(&total).then_some(total as usize)
}

struct Words<T> {
    expects: &'static str,
    read: fn(f64, &str) -> Option<T>,
}

impl<T> Words<T> {
    fn number<E: de::Error>(&self, number: f64) -> Result<T, E> {
        (self.read)(number, "").ok_or_else(|| E::custom(format!("{number} is not {}", self.expects)))
    }
}

impl<T> Visitor<'_> for Words<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expects)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        #[expect(clippy::cast_precision_loss, reason = "no one configures 2^53 seconds or bytes")]
        self.number(number as f64)
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
        self.number(number)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        let text = text.trim();
        let split = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let number = number.replace('_', "").parse::<f64>().ok();
        number
            .and_then(|number| (self.read)(number, unit.trim()))
            .ok_or_else(|| E::custom(format!("\"{text}\" is not {}", self.expects)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Row {
        #[serde(deserialize_with = "duration")]
        wait: Duration,
        #[serde(deserialize_with = "size")]
        body: usize,
    }

    #[test]
    fn durations_and_sizes_are_read_as_people_write_them() {
        for (text, wait, body) in [
            ("wait = \"250ms\"\nbody = \"64MiB\"", Duration::from_millis(250), 64 << 20),
            ("wait = 30\nbody = 1024", Duration::from_secs(30), 1024),
            ("wait = \"1.5 m\"\nbody = \"2MB\"", Duration::from_secs(90), 2_000_000),
        ] {
            let row: Row = toml::from_str(text).unwrap();
            assert_eq!((row.wait, row.body), (wait, body), "{text}");
        }
    }

    #[test]
    fn an_unknown_unit_is_refused_with_an_example() {
        for text in [
            "wait = \"3 days\"\nbody = 1",
            "wait = \"-3s\"\nbody = 1",
            "wait = true\nbody = 1",
            "wait = \"99999999999h\"\nbody = 1",
            "wait = 1e300\nbody = 1",
        ] {
            let error = toml::from_str::<Row>(text).err().unwrap().to_string();
            assert!(error.contains("\"30s\""), "{error}");
        }
    }
}
