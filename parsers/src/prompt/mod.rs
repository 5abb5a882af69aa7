//! Prompts: what a request becomes on an engine, and how many tokens that is.
//!
//! | room | job |
//! |---|---|
//! | `bounds`, `words` | a count between two numbers, from one scan of the body, without a vocabulary |
//! | `counter`, `load` | [`PromptCounter`]: a model's template and vocabulary, loaded once, counting requests |
//! | `harmony` | gpt-oss's prompts, which vLLM renders without a template |
//! | `images` | pixels to tokens |
//! | `normalise` | what vLLM and llama.cpp make of a request before they render it |
//! | `probe` | what a template can do |
//! | `render` | a whole prompt |
//! | `template` | rendering untrusted templates within bounds |
//! | `turns` | a conversation that grew: only what is new is rendered and counted |
//! | `vocabulary` | text to number of tokens |
//! | `gguf` | the header of a GGUF file |
//!
//! Counts are exact for models with a byte-level BPE vocabulary and a template of their own, on the engine versions that `normalise`
//! names. Nothing here may guess: what cannot be counted is an error or a pair of bounds.

mod bounds;
mod completion;
mod count;
mod counter;
mod gguf;
#[cfg(test)]
mod gguf_writer;
mod harmony;
mod images;
mod load;
mod normalise;
mod probe;
mod render;
mod stop;
mod template;
#[cfg(test)]
mod tests;
mod turns;
mod unsure;
mod vocabulary;
mod words;

pub use bounds::{PER_IMAGE, bounds};
pub use count::TokenCount;
pub use counter::{CountError, PromptCounter};
pub use images::{Image, ImageRule, ImageSize, images};
pub use load::LoadError;
pub use normalise::Normalisation;
pub use stop::Stop;
