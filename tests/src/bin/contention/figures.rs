//! Figures of a run: percentiles, tables, one line of JSON.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

/// The value below which a share of them lies; 0 of none.
pub(crate) fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = ((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len().max(1)) - 1;
    sorted.get(at).copied().unwrap_or(0.0)
}

pub(crate) fn largest(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// What a scenario found: a table for people, figures for programs.
#[derive(Debug)]
pub(crate) struct Report {
    title: String,
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    notes: Vec<String>,
    figures: Map<String, Value>,
}

impl Report {
    pub(crate) fn new(title: impl Into<String>, head: &[&'static str]) -> Self {
        Self {
            title: title.into(),
            head: head.to_vec(),
            rows: Vec::new(),
            notes: Vec::new(),
            figures: Map::new(),
        }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    pub(crate) fn figure(&mut self, name: impl Into<String>, value: f64) {
        self.figures.insert(name.into(), json!((value * 1000.0).round() / 1000.0));
    }

    /// The table, the notes, and the line of JSON.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}\n\n", self.title);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.chain([self.head[column].chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let head: Vec<String> = self.head.iter().map(|name| (*name).to_owned()).collect();
        for row in std::iter::once(&head).chain(&self.rows) {
            for (nth, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let (width, gap) = (*width, if nth == 0 { "" } else { "  " });
                // Words to the left, numbers to the right.
                let number = cell.starts_with(|c: char| c.is_ascii_digit() || c == '-');
                let _ = if number || (nth > 0 && row == &head) {
                    write!(text, "{gap}{cell:>width$}")
                } else {
                    write!(text, "{gap}{cell:<width$}")
                };
            }
            text = text.trim_end().to_owned() + "\n";
        }
        for note in &self.notes {
            let _ = write!(text, "\n{note}\n");
        }
        let _ = writeln!(text, "\n{}", Value::Object(self.figures.clone()));
        text
    }
}

/// Seconds as a cell.
pub(crate) fn s(seconds: f64) -> String {
    if seconds < 10.0 { format!("{seconds:.2}") } else { format!("{seconds:.1}") }
}
