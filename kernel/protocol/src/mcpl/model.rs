//! `model/info`: which model is in use (MCPL §12).

use serde::{Deserialize, Serialize};

use crate::mcp::methods;

methods! { "model/info" => Info }

/// Capabilities read of one model; real ones have a handful.
const CAPABILITIES_MAX: usize = 64;
/// Longest id, vendor or capability read, in bytes.
const WORD_MAX: usize = 256;

/// `model/info`: a server asks which model is in use. Answered by a [`ModelInfo`].
#[derive(Debug)]
pub struct Info;

/// A model, as hooks and `model/info` name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelDescription {
    /// What its vendor calls it.
    pub id: String,
    /// Who makes it.
    pub vendor: String,
    /// How many tokens it reads and writes in all.
    pub context_window: u64,
    /// What it can do, as `vision` and `tools`.
    #[serde(default)]
    pub capabilities: Vec<String>,
}

impl ModelDescription {
    /// Reads what an agent says of its model.
    ///
    /// # Errors
    /// In words: a member that is missing or of another kind, or longer than any model's is.
    pub fn parse(text: &str) -> Result<Self, String> {
        let info: Self = mgp_json::lookalike::from_object(text).map_err(|e| e.to_string())?;
        let is_long = |word: &String| word.len() > WORD_MAX;
        let long = is_long(&info.id) || is_long(&info.vendor);
        let long = long || info.capabilities.iter().any(is_long);
        if long || info.capabilities.len() > CAPABILITIES_MAX {
            return Err(format!(
                "a model has {CAPABILITIES_MAX} capabilities at most, each word {WORD_MAX} bytes at most"
            ));
        }
        Ok(info)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MCPL-109: the form of §12.2, with or without capabilities.
    #[test]
    fn a_model_is_read_and_written_as_the_document_shows_it() {
        let text = r#"{"id":"claude-opus-4-5-20251101","vendor":"anthropic","contextWindow":200000,"capabilities":["vision","tools","computer_use"]}"#;
        let model = ModelDescription::parse(text).unwrap();
        assert_eq!(serde_json::to_string(&model).unwrap(), text);
        let bare = ModelDescription::parse(r#"{"id":"m","vendor":"v","contextWindow":1,"new":{}}"#);
        assert_eq!(bare.unwrap().capabilities, Vec::<String>::new());
        let long = "x".repeat(WORD_MAX + 1);
        for bad in [
            r#"{"id":"m","vendor":"v"}"#.to_owned(),
            r#"{"id":"m","vendor":"v","contextWindow":-1}"#.to_owned(),
            r#"["m","v",1]"#.to_owned(),
            format!(r#"{{"id":"{long}","vendor":"v","contextWindow":1}}"#),
        ] {
            assert!(ModelDescription::parse(&bad).is_err(), "{bad:.60}");
        }
    }
}
