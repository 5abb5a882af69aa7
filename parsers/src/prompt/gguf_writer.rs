//! Writes the headers of GGUF files, for tests: small vocabularies without a download, and files that are wrong on purpose.
//!
//! It writes what [`super::gguf`] reads, so a test of both together proves nothing of the format: the reader is held against real
//! files in `tests/real_counts.rs`.

use super::gguf::{ARRAY, Meta, STRING};

/// The bytes of a GGUF file that has these keys and no tensors.
pub(super) fn write(pairs: &[(&str, Meta)]) -> Vec<u8> {
    let mut file = b"GGUF\x03\0\0\0".to_vec();
    file.extend(0_u64.to_le_bytes());
    file.extend((pairs.len() as u64).to_le_bytes());
    for (key, value) in pairs {
        put_text(&mut file, key);
        match value {
            Meta::Integer(value) => put(&mut file, 4, &(*value as u32).to_le_bytes()),
            Meta::Float(value) => put(&mut file, 6, &(*value as f32).to_le_bytes()),
            Meta::Bool(value) => put(&mut file, 7, &[u8::from(*value)]),
            Meta::Text(text) => {
                put(&mut file, STRING, &[]);
                put_text(&mut file, text);
            }
            Meta::Texts(texts) => {
                put_array(&mut file, STRING, texts.len());
                texts.iter().for_each(|text| put_text(&mut file, text));
            }
            Meta::Integers(values) => {
                put_array(&mut file, 5, values.len());
                values.iter().for_each(|value| file.extend((*value as i32).to_le_bytes()));
            }
        }
    }
    file
}

fn put(file: &mut Vec<u8>, kind: u32, bytes: &[u8]) {
    file.extend(kind.to_le_bytes());
    file.extend(bytes);
}

fn put_array(file: &mut Vec<u8>, kind: u32, length: usize) {
    put(file, ARRAY, &kind.to_le_bytes());
    file.extend((length as u64).to_le_bytes());
}

fn put_text(file: &mut Vec<u8>, text: &str) {
    file.extend((text.len() as u64).to_le_bytes());
    file.extend(text.as_bytes());
}
