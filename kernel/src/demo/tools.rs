//! The tools of the demo server: what is said about them, and who carries them out.

use mgp_protocol::dialect::Version;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::server::Session;
use super::{ask, search, slow, time};

/// A tool.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tool {
    Time,
    SearchText,
    SlowJob,
    AskMe,
}

impl Tool {
    const ALL: [Self; 4] = [Self::Time, Self::SearchText, Self::SlowJob, Self::AskMe];

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|tool| tool.definition()["name"] == name)
    }

    fn definition(self) -> Value {
        match self {
            Self::Time => time::definition(),
            Self::SearchText => search::definition(),
            Self::SlowJob => slow::definition(),
            Self::AskMe => ask::definition(),
        }
    }

    /// Carries the tool out.
    ///
    /// # Errors
    /// What is wrong with the arguments, in words.
    pub(super) async fn call(
        self,
        arguments: &str,
        session: &Session,
        progress_token: Option<&str>,
    ) -> Result<Value, String> {
        match self {
            Self::Time => time::call(&read(arguments)?, session.version),
            Self::SearchText => search::call(read(arguments)?, session).await,
            Self::SlowJob => slow::call(read(arguments)?, session, progress_token).await,
            Self::AskMe => {
                read::<ask::Arguments>(arguments)?;
                Ok(ask::call(session).await)
            }
        }
    }
}

/// `tools` of `tools/list`, with what this version knows.
pub(super) fn list(version: Version) -> Vec<Value> {
    let mut definitions = Tool::ALL.map(Tool::definition);
    for definition in definitions.iter_mut().filter_map(Value::as_object_mut) {
        if version < Version::V2025_06_18 {
            definition.shift_remove("title");
            definition.shift_remove("outputSchema");
        }
        if version < Version::V2025_03_26 {
            definition.shift_remove("annotations");
        }
    }
    definitions.into()
}

fn read<T: DeserializeOwned>(arguments: &str) -> Result<T, String> {
    serde_json::from_str(arguments).map_err(|e| {
        let words = e.to_string();
        words
            .split(" at line ")
            .next()
            .unwrap_or_default()
            .to_owned()
    })
}

/// A result for people, and for programs where the version has a place for that. The text repeats
/// the structure for clients that read only text.
pub(super) fn structured(value: Value, version: Version) -> Value {
    let mut result = text(&value.to_string());
    if version >= Version::V2025_06_18 {
        result["structuredContent"] = value;
    }
    result
}

/// A result of one text.
pub(super) fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

/// A result that says why the tool failed.
pub(super) fn failed(why: &str) -> Value {
    let mut result = text(why);
    result["isError"] = true.into();
    result
}
