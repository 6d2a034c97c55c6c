//! The claims of a token, each of which must be unique (RFC 7519, section 4).

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};

/// The payload of a token.
pub(super) enum Claims {
    /// Each name occurs once.
    Unique(Map<String, Value>),
    /// A name occurs twice, however it is escaped, so that parsers may differ about its value.
    Duplicate,
}

impl<'de> Deserialize<'de> for Claims {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ClaimsVisitor)
    }
}

struct ClaimsVisitor;

impl<'de> Visitor<'de> for ClaimsVisitor {
    type Value = Claims;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of claims")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Claims, A::Error> {
        let (mut claims, mut is_unique) = (Map::new(), true);
        while let Some((name, value)) = members.next_entry::<String, Value>()? {
            is_unique &= claims.insert(name, value).is_none();
        }
        Ok(if is_unique {
            Claims::Unique(claims)
        } else {
            Claims::Duplicate
        })
    }
}
