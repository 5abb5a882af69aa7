//! The wire side of the parsers, seen from outside: requests and their edits, streams, chunks, errors.

#[cfg(test)]
mod chunk;
#[cfg(test)]
mod chunk_dialects;
#[cfg(test)]
mod diagnosis;
#[cfg(test)]
mod edit;
#[cfg(test)]
mod edit_properties;
#[cfg(test)]
mod json;
#[cfg(test)]
mod request;
#[cfg(test)]
mod sse;
