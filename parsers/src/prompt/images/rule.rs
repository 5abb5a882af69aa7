//! The models' rules: pixels to tokens.
//!
//! | family | rule | source |
//! |---|---|---|
//! | Qwen2-VL, 2.5-VL | sides to multiples of 28, area within limits, a token for 28² | transformers, `smart_resize` |
//! | Qwen3-VL, 3.5, 3.6 | the same with 32 | transformers, `smart_resize` |
//! | Gemma 3 | 256 | its processor, without pan-and-scan |
//! | Gemma 4 | as many squares of 48 as fit into 280 | its processor, `max_soft_tokens` |
//! | Pixtral, Mistral 3 | longest side to 1540, rows of squares of 28, each row with an end | transformers, `get_resize_output_image_size` |
//!
//! Engines have limits of their own on top (llama.cpp's `--image-max-tokens`), so this is what vLLM makes of an image by default. Floats are
//! used where the sources use them, with their rounding.

use serde_json::Value as Json;

use super::ImageSize;

/// A model's rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageRule {
    /// Sides become multiples of `factor`, and the area lies within the limits, in pixels.
    Squares {
        /// Pixels of a token's side.
        factor: u32,
        /// The smallest area.
        least: u64,
        /// The largest area.
        most: u64,
    },
    /// Every image is the same to the model.
    Fixed(u64),
    /// Squares of 48 pixels, at most so many.
    Soft(u64),
    /// Rows of squares of 28 pixels with an end mark each, after the longest side was cut to so many pixels.
    Rows(u32),
}

impl ImageRule {
    /// The rule of a model, from what its files say: `config.json`, `preprocessor_config.json` and the chat template. None for a model
    /// that sees no images, or whose rule is not known.
    pub fn find(config: &Json, preprocessor: &Json, template: &str) -> Option<Self> {
        let kind = config.get("model_type").and_then(Json::as_str).unwrap_or_default();
        let pixels = |old: &str, new: &str| {
            let named = preprocessor.get(old).and_then(Json::as_u64);
            named.or_else(|| preprocessor.get("size")?.get(new)?.as_u64()).filter(|pixels| *pixels > 0)
        };
        let squares = |factor: u32, least: u64, most: u64| Self::Squares {
            factor,
            least: pixels("min_pixels", "shortest_edge").unwrap_or(least),
            most: pixels("max_pixels", "longest_edge").unwrap_or(most),
        };
        let soft = preprocessor.get("max_soft_tokens").and_then(Json::as_u64).filter(|tokens| *tokens > 0);
        let has = |mark: &str| template.contains(mark);
        Some(match kind {
            "qwen2_vl" | "qwen2_5_vl" => squares(28, 56 * 56, 28 * 28 * 1280),
            _ if kind.starts_with("qwen3") && has("<|vision_start|>") => squares(32, 65_536, 16_777_216),
            "gemma3" => Self::Fixed(256),
            _ if kind.starts_with("gemma4") => Self::Soft(soft.unwrap_or(280)),
            "pixtral" | "mistral3" => Self::Rows(1540),
            "" if has("<|vision_start|>") && has("<think>") => squares(32, 65_536, 16_777_216),
            "" if has("<|vision_start|>") => squares(28, 56 * 56, 28 * 28 * 1280),
            "" if has("<start_of_image>") => Self::Fixed(256),
            "" if has("[IMG]") => Self::Rows(1540),
            _ => return None,
        })
    }

    /// Tokens of an image of this size, without what the template prints around it.
    pub fn tokens(self, size: ImageSize) -> u64 {
        let (width, height) = (f64::from(size.width), f64::from(size.height));
        match self {
            Self::Fixed(tokens) => tokens,
            Self::Squares { factor, least, most } => {
                let side = f64::from(factor);
                let near = |pixels: f64| (pixels / side).round_ties_even();
                let (mut across, mut down) = (near(width), near(height));
                let area = (across * down * side * side) as u64;
                if area > most {
                    let by = (width * height / most as f64).sqrt();
                    across = (width / by / side).floor().max(1.0);
                    down = (height / by / side).floor().max(1.0);
                } else if area < least {
                    let by = (least as f64 / (width * height)).sqrt();
                    across = (width * by / side).ceil();
                    down = (height * by / side).ceil();
                }
                (across * down) as u64
            }
            Self::Soft(most) => {
                let by = (most as f64 * 9.0 * 256.0 / (width * height)).sqrt();
                let fit = |pixels: f64| (pixels * by / 48.0).floor() as u64;
                match (fit(width), fit(height)) {
                    // A strip is as long as it is wide, and one square high.
                    (across, 0) if across > 0 => ((width / height).floor() as u64).min(most),
                    (0, down) if down > 0 => ((height / width).floor() as u64).min(most),
                    (across, down) => across * down,
                }
            }
            Self::Rows(longest) => {
                let by = (width.max(height) / f64::from(longest)).max(1.0);
                let squares = |pixels: f64| ((pixels / by).floor() as u64).saturating_sub(1) / 28 + 1;
                squares(height) * (squares(width) + 1)
            }
        }
    }

    /// The most tokens that any image has.
    pub fn most(self) -> u64 {
        match self {
            Self::Fixed(tokens) | Self::Soft(tokens) => tokens,
            Self::Squares { factor, most, .. } => most / u64::from(factor).pow(2),
            Self::Rows(longest) => {
                let squares = u64::from(longest).div_ceil(28);
                squares * (squares + 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::{ImageRule, ImageSize};

    fn tokens(rule: ImageRule, width: u32, height: u32) -> u64 {
        rule.tokens(ImageSize { width, height })
    }

    fn find(kind: &str, preprocessor: Json, template: &str) -> ImageRule {
        ImageRule::find(&json!({"model_type": kind}), &preprocessor, template).unwrap()
    }

    #[test]
    fn squares_are_counted_as_transformers_resizes() {
        let qwen3 = find("qwen3_vl", json!({}), "<|vision_start|>");
        assert_eq!(tokens(qwen3, 2560, 1600), 80 * 50);
        assert_eq!(tokens(qwen3, 1000, 1000), 31 * 31);
        // Too small: 65536 pixels at least. Too large: 16 Mi at most.
        assert_eq!(tokens(qwen3, 100, 100), 64);
        assert_eq!(tokens(qwen3, 10_000, 10_000), qwen3.most());
        let qwen2 = find("qwen2_5_vl", json!({"max_pixels": 12_845_056, "min_pixels": 3136}), "");
        assert_eq!(tokens(qwen2, 1920, 1080), 69 * 39);
        assert_eq!(qwen2.most(), 16_384);
        // 42 and 70 lie between two multiples of 28: both go to the even one.
        assert_eq!(tokens(qwen2, 420, 70), 15 * 2);
        assert_eq!(tokens(qwen2, 420, 126), 15 * 4);
    }

    #[test]
    fn the_other_families_have_rules_of_their_own() {
        assert_eq!(tokens(find("gemma3", Json::Null, ""), 4000, 10), 256);
        let gemma4 = find("gemma4", Json::Null, "");
        assert_eq!((tokens(gemma4, 800, 800), gemma4.most()), (16 * 16, 280));
        assert_eq!(tokens(find("gemma4", json!({"max_soft_tokens": 70}), ""), 800, 800), 64);
        assert_eq!((tokens(gemma4, 6000, 10), tokens(gemma4, 10, 900)), (280, 158));
        let pixtral = find("mistral3", Json::Null, "");
        assert_eq!(tokens(pixtral, 1540, 1540), 55 * 56);
        assert_eq!(tokens(pixtral, 3080, 1540), 28 * 56);
        assert_eq!(tokens(pixtral, 29, 28), 3);
    }

    #[test]
    fn without_a_config_the_template_tells_the_family() {
        let rule = |template| ImageRule::find(&Json::Null, &Json::Null, template);
        assert!(matches!(rule("<|vision_start|><think>"), Some(ImageRule::Squares { factor: 32, .. })));
        assert!(matches!(rule("<|vision_start|>"), Some(ImageRule::Squares { factor: 28, .. })));
        assert_eq!(rule("<start_of_image>"), Some(ImageRule::Fixed(256)));
        assert_eq!(rule("plain"), None);
    }
}
