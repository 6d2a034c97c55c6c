//! The parameters of a query or form.

use std::collections::BTreeMap;

use url::form_urlencoded;

use super::OauthError;

/// Most parameters of one request; a token request has eight.
const PARAMS_MAX: usize = 32;

/// Parameters, each of which occurs once (RFC 6749, section 3.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params(BTreeMap<String, String>);

impl Params {
    /// Parses a query or a form.
    ///
    /// # Errors
    /// `invalid_request`: a parameter occurs twice, or there are too many.
    pub fn parse(text: &str) -> Result<Self, OauthError> {
        let mut params = BTreeMap::new();
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            let before = params.insert(name.into_owned(), value.into_owned());
            if before.is_some() || params.len() > PARAMS_MAX {
                return Err(OauthError::invalid_request(
                    "a parameter occurs twice, or there are too many",
                ));
            }
        }
        Ok(Self(params))
    }

    /// The value of a parameter; one without a value counts as absent (RFC 6749, section 3.1).
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let value = self.0.get(name).map(String::as_str);
        value.filter(|value| !value.is_empty())
    }

    /// The value of a parameter that must be there.
    ///
    /// # Errors
    /// `invalid_request`.
    pub fn require(&self, name: &'static str) -> Result<&str, OauthError> {
        let missing = || OauthError::invalid_request(format!("`{name}` is missing"));
        self.get(name).ok_or_else(missing)
    }
}
