//! Deserializes text that serde_json has accepted before, as part of a larger message, without looking at every byte
//! again: strings are skipped by their end, values that are not read are not parsed, and a raw value is borrowed as it
//! is.

use std::borrow::Cow;

use serde::de::value::{BorrowedStrDeserializer, StrDeserializer, StringDeserializer};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, Visitor};
use serde_json::Error;

use crate::{string_end, unquote};

/// serde_json's marker of a raw value.
const RAW_VALUE_MARK: char = '$';

/// A value as text.
#[derive(Clone, Copy)]
pub(crate) struct Accepted<'a>(pub(crate) &'a str);

impl<'a> Accepted<'a> {
    fn parser(self) -> serde_json::Deserializer<serde_json::de::StrRead<'a>> {
        serde_json::Deserializer::from_str(self.0)
    }

    /// The members, if it is an object.
    fn members(self) -> Option<Members<'a>> {
        let object = self.0.trim_start_matches(is_space).strip_prefix('{')?;
        Some(Members {
            rest: object,
            value: "",
        })
    }
}

macro_rules! parse {
    ($($method:ident($($arg:ident: $kind:ty),*)),* $(,)?) => {
        $(fn $method<V: Visitor<'de>>(self, $($arg: $kind,)* visitor: V) -> Result<V::Value, Error> {
            self.parser().$method($($arg,)* visitor)
        })*
    };
}

impl<'de> Deserializer<'de> for Accepted<'de> {
    type Error = Error;

    parse! {
        deserialize_any(), deserialize_bool(), deserialize_i8(), deserialize_i16(),
        deserialize_i32(), deserialize_i64(), deserialize_i128(), deserialize_u8(),
        deserialize_u16(), deserialize_u32(), deserialize_u64(), deserialize_u128(),
        deserialize_f32(), deserialize_f64(), deserialize_char(), deserialize_str(),
        deserialize_string(), deserialize_bytes(), deserialize_byte_buf(), deserialize_unit(),
        deserialize_unit_struct(name: &'static str), deserialize_seq(),
        deserialize_tuple(len: usize), deserialize_tuple_struct(name: &'static str, len: usize),
        deserialize_identifier(),
        deserialize_enum(name: &'static str, variants: &'static [&'static str]),
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            "null" => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        if name.starts_with(RAW_VALUE_MARK) {
            return visitor.visit_map(RawValueAccess {
                name: Some(name),
                text: self.0,
            });
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.members() {
            Some(members) => visitor.visit_map(members),
            None => self.parser().deserialize_struct(name, fields, visitor),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.members() {
            Some(members) => visitor.visit_map(members),
            None => self.parser().deserialize_map(visitor),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }
}

/// The members of an object that are left.
struct Members<'a> {
    rest: &'a str,
    /// Of the name that was read last.
    value: &'a str,
}

impl<'a> Members<'a> {
    /// The name of the next member; its value is kept. Outer `None` for text that is no JSON.
    fn next(&mut self) -> Option<Option<Cow<'a, str>>> {
        let text = self.rest.trim_start_matches(|c| is_space(c) || c == ',');
        if text.starts_with('}') {
            return Some(None);
        }
        let inner = text.strip_prefix('"')?;
        let end = string_end(inner.as_bytes())?;
        let (name, after) = (&inner[..end], inner.get(end + 1..)?);
        let name = if memchr::memchr(b'\\', name.as_bytes()).is_some() {
            unquote(&text[..end + 2])?
        } else {
            Cow::Borrowed(name)
        };
        let after = after.trim_start_matches(is_space).strip_prefix(':')?;
        let after = after.trim_start_matches(is_space);
        let (value, rest) = after.split_at_checked(value_end(after.as_bytes())?)?;
        (self.value, self.rest) = (value, rest);
        Some(Some(name))
    }
}

impl<'de> MapAccess<'de> for Members<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let name = self.next().ok_or_else(|| Error::custom("invalid JSON"))?;
        name.map(|name| match name {
            Cow::Borrowed(name) => seed.deserialize(BorrowedStrDeserializer::new(name)),
            Cow::Owned(name) => {
                let name: StringDeserializer<Error> = name.into_deserializer();
                seed.deserialize(name)
            }
        })
        .transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(Accepted(self.value))
    }
}

/// What serde_json expects for a raw value: one member, whose value is the text.
struct RawValueAccess<'a> {
    name: Option<&'static str>,
    text: &'a str,
}

impl<'de> MapAccess<'de> for RawValueAccess<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let name = self.name.take().map(|name| {
            let name: StrDeserializer<'_, Error> = name.into_deserializer();
            seed.deserialize(name)
        });
        name.transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(BorrowedStrDeserializer::new(self.text))
    }
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}

/// Where the value ends that the text begins with.
fn value_end(text: &[u8]) -> Option<usize> {
    let (mut at, mut depth) = (0, 0_usize);
    loop {
        match *text.get(at)? {
            b'"' => at += string_end(&text[at + 1..])? + 1,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.checked_sub(1)?,
            b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' => {}
            _ if depth == 0 => {
                let ends =
                    |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r');
                return Some(text.iter().position(ends).unwrap_or(text.len()));
            }
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return Some(at);
        }
    }
}
