//! A response to a request, as the bytes that came.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// One response.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The frame as it came.
    pub frame: String,
}

#[derive(Deserialize)]
struct Parts<'a> {
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<Value>,
}

impl Answer {
    fn parts(&self) -> Parts<'_> {
        let parts = serde_json::from_str(&self.frame);
        parts.unwrap_or_else(|e| panic!("{e}: {}", self.frame))
    }

    /// True when it is an error.
    ///
    /// # Panics
    /// When it is no JSON.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.parts().error.is_some()
    }

    /// The bytes of the result.
    ///
    /// # Panics
    /// When it is an error.
    #[must_use]
    pub fn result_text(&self) -> &str {
        let result = self.parts().result;
        result.map_or_else(|| panic!("no result: {}", self.frame), RawValue::get)
    }

    /// The result; calling it only to see that there is one is fine too.
    ///
    /// # Panics
    /// When it is an error.
    pub fn result(&self) -> Value {
        serde_json::from_str(self.result_text()).expect("a raw value is JSON")
    }

    /// The error; calling it only to see that there is one is fine too.
    ///
    /// # Panics
    /// When it is a result.
    pub fn error(&self) -> Value {
        let error = self.parts().error;
        error.unwrap_or_else(|| panic!("no error: {}", self.frame))
    }

    /// The code of the error.
    ///
    /// # Panics
    /// When it is a result, or an error without a code.
    #[must_use]
    pub fn code(&self) -> i64 {
        let code = self.error()["code"].as_i64();
        code.unwrap_or_else(|| panic!("no code: {}", self.frame))
    }

    /// The text of the first content block of a tool's result.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn text(&self) -> String {
        let text = self.result()["content"][0]["text"]
            .as_str()
            .map(str::to_owned);
        text.unwrap_or_else(|| panic!("no text: {}", self.frame))
    }
}
