//! What is sent in the place of what has changed since the recording, or was masked in it.

use std::collections::{BTreeMap, HashMap};

use mgp_protocol::splice::{Splice, member, members, quote};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::store::masks::MASK;

/// What an answer gives its server's next request: the name in a result, and in params.
const CARRIED: [(&str, &str); 2] = [("requestState", "requestState"), ("nextCursor", "cursor")];

/// What is put in the place of what was recorded.
#[derive(Clone, Debug, Default)]
pub struct Substitutes {
    /// Values of what is masked, by the name of their member.
    values: BTreeMap<String, String>,
    /// What answers gave for the next request: what was recorded, and what came now.
    carried: HashMap<(&'static str, String), String>,
}

impl Substitutes {
    /// With values for what is masked.
    #[must_use]
    pub fn new(values: BTreeMap<String, String>) -> Self {
        Self {
            values,
            carried: HashMap::new(),
        }
    }

    /// An answer came: what it gives for the next request takes the place of what the recorded one gave.
    pub fn record_answer(&mut self, recorded: &Value, now: &Value) {
        for (in_result, in_params) in CARRIED {
            let of = |answer: &Value| Some(answer["result"][in_result].as_str()?.to_owned());
            if let (Some(recorded), Some(now)) = (of(recorded), of(now)) {
                self.carried.insert((in_params, recorded), now);
            }
        }
    }

    /// The params as they are sent.
    ///
    /// # Errors
    /// The names of what is masked and has no value.
    pub fn apply(&self, params: &str) -> Result<String, Vec<String>> {
        let mut splice = Splice::new(params);
        for (_, name) in CARRIED {
            let said = member(params, name);
            let text: Option<String> = said.and_then(|said| serde_json::from_str(said).ok());
            let now = text.and_then(|text| self.carried.get(&(name, text)));
            if let (Some(said), Some(now)) = (said, now) {
                splice.replace(said, quote(now));
            }
        }
        let carried = splice.finish().into_owned();
        if !carried.contains(MASK) {
            return Ok(carried);
        }
        let mut missing = Vec::new();
        let filled = self.fill_masked(&carried, "", &mut missing);
        if missing.is_empty() {
            Ok(filled)
        } else {
            Err(missing)
        }
    }

    /// JSON with the values that were set; all else stays as it was written, numbers, too.
    fn fill_masked(&self, json: &str, name: &str, missing: &mut Vec<String>) -> String {
        if !json.contains(MASK) {
            return json.to_owned();
        }
        if let Some(members) = members(json) {
            let filled = members.iter().map(|(name, value)| {
                let value = self.fill_masked(value.get(), name, missing);
                format!("{}:{value}", quote(name))
            });
            return format!("{{{}}}", filled.collect::<Vec<_>>().join(","));
        }
        if let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(json) {
            let filled = items
                .iter()
                .map(|item| self.fill_masked(item.get(), name, missing));
            return format!("[{}]", filled.collect::<Vec<_>>().join(","));
        }
        match (serde_json::from_str::<String>(json), self.values.get(name)) {
            (Ok(text), Some(set)) => quote(&text.replace(MASK, set)),
            (Ok(_) | Err(_), _) => {
                missing.push(name.to_owned());
                json.to_owned()
            }
        }
    }
}
