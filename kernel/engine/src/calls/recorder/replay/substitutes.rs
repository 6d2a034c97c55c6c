//! Substitutes for values that have changed since the recording, or were masked in it.

use std::collections::{BTreeMap, HashMap};

use mgp_json::{Splice, elements, member, members, quote, render_object};
use serde_json::Value;

use mgp_screening::masks::MASK;

/// Values of an answer that the next request sends back: the name in a result, and in params.
const CARRIED: [(&str, &str); 2] = [("requestState", "requestState"), ("nextCursor", "cursor")];

/// The values that replace recorded ones.
#[derive(Clone, Debug, Default)]
pub struct Substitutes {
    /// Values for masked members, by member name.
    values: BTreeMap<String, String>,
    /// Values that answers gave for the next request: recorded value to new value.
    carried: HashMap<(&'static str, String), String>,
}

impl Substitutes {
    /// Creates substitutes with values for masked members.
    #[must_use]
    pub fn new(values: BTreeMap<String, String>) -> Self {
        Self {
            values,
            carried: HashMap::new(),
        }
    }

    /// Records an answer: its value for the next request replaces the recorded one.
    pub fn record_answer(&mut self, recorded: &Value, now: &Value) {
        for (in_result, in_params) in CARRIED {
            let of = |answer: &Value| Some(answer["result"][in_result].as_str()?.to_owned());
            if let (Some(recorded), Some(now)) = (of(recorded), of(now)) {
                self.carried.insert((in_params, recorded), now);
            }
        }
    }

    /// The params to send.
    ///
    /// # Errors
    /// The names of masked members without a value.
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

    /// Fills in masked values; everything else stays as written, including numbers.
    fn fill_masked(&self, json: &str, name: &str, missing: &mut Vec<String>) -> String {
        if !json.contains(MASK) {
            return json.to_owned();
        }
        if let Some(members) = members(json) {
            return render_object(members.iter().map(|(name, value)| {
                let value = self.fill_masked(value.get(), name, missing);
                (name, value)
            }));
        }
        if let Some(items) = elements(json) {
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
