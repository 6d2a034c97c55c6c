//! `model/info`: the model in use (MCPL §12).

use serde::{Deserialize, Serialize};

use crate::mcp::methods;

methods! { "model/info" => Info }

/// The most capabilities of one model; usual ones have a handful.
const CAPABILITIES_MAX: usize = 64;
/// The longest id, vendor or capability, in bytes.
const WORD_MAX: usize = 256;

/// `model/info`: a server's request for the model in use. Answered by a [`ModelInfo`].
#[derive(Debug)]
pub struct Info;

/// The description of a model, in hooks and `model/info`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelDescription {
    /// Its id.
    pub id: String,
    /// Its vendor.
    pub vendor: String,
    /// The context window in tokens.
    pub context_window: u64,
    /// Its capabilities, such as `vision` and `tools`.
    #[serde(default)]
    pub capabilities: Vec<String>,
}

impl ModelDescription {
    /// Parses an agent's description of its model.
    ///
    /// # Errors
    /// A description: a missing, invalid or overlong member.
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
    fn model_round_trips_as_in_the_document() {
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
