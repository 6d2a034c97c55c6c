//! A deserializer that reads structs only from objects, and checks the names of members first.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};

use super::{find_lookalike, lookalike_message};

/// How serde_json marks a raw value.
const RAW_VALUE_MARK: char = '$';

/// Passes everything on, and is wary of structs.
pub(super) struct StrictDeserializer<D> {
    pub(super) inner: D,
    /// Whether lookalikes of members are refused.
    pub(super) checks_names: bool,
}

macro_rules! forward {
    ($($method:ident($($arg:ident: $kind:ty),*)),* $(,)?) => {
        $(fn $method<V: Visitor<'de>>(self, $($arg: $kind,)* visitor: V) -> Result<V::Value, D::Error> {
            self.inner.$method($($arg,)* visitor)
        })*
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for StrictDeserializer<D> {
    type Error = D::Error;

    forward! {
        deserialize_any(), deserialize_bool(), deserialize_i8(), deserialize_i16(),
        deserialize_i32(), deserialize_i64(), deserialize_i128(), deserialize_u8(),
        deserialize_u16(), deserialize_u32(), deserialize_u64(), deserialize_u128(),
        deserialize_f32(), deserialize_f64(), deserialize_char(), deserialize_str(),
        deserialize_string(), deserialize_bytes(), deserialize_byte_buf(), deserialize_unit(),
        deserialize_unit_struct(name: &'static str),
        deserialize_tuple(len: usize), deserialize_tuple_struct(name: &'static str, len: usize),
        deserialize_identifier(), deserialize_ignored_any(),
        deserialize_enum(name: &'static str, variants: &'static [&'static str]),
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let names = self.checks_names;
        let members = MemberVisitor {
            visitor,
            fields,
            checks_names: names,
        };
        self.inner.deserialize_struct(name, fields, members)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let names = self.checks_names;
        self.inner.deserialize_seq(NestedVisitor {
            visitor,
            checks_names: names,
        })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let names = self.checks_names;
        self.inner.deserialize_map(NestedVisitor {
            visitor,
            checks_names: names,
        })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let names = self.checks_names;
        self.inner.deserialize_option(NestedVisitor {
            visitor,
            checks_names: names,
        })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let names = self.checks_names;
        if name.starts_with(RAW_VALUE_MARK) {
            self.inner.deserialize_newtype_struct(name, visitor)
        } else {
            self.inner.deserialize_newtype_struct(
                name,
                NestedVisitor {
                    visitor,
                    checks_names: names,
                },
            )
        }
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

/// What is in an option, a newtype, an array or a map.
struct NestedVisitor<V> {
    visitor: V,
    checks_names: bool,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for NestedVisitor<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, of: D) -> Result<V::Value, D::Error> {
        let names = self.checks_names;
        self.visitor.visit_some(StrictDeserializer {
            inner: of,
            checks_names: names,
        })
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, of: D) -> Result<V::Value, D::Error> {
        let names = self.checks_names;
        self.visitor.visit_newtype_struct(StrictDeserializer {
            inner: of,
            checks_names: names,
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, of: A) -> Result<V::Value, A::Error> {
        let names = self.checks_names;
        self.visitor.visit_seq(StrictSeed {
            inner: of,
            checks_names: names,
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_map(CheckedMap {
            map,
            fields: &[],
            checks_names: self.checks_names,
        })
    }
}

/// The members of a struct that knows these.
struct MemberVisitor<V> {
    visitor: V,
    fields: &'static [&'static str],
    checks_names: bool,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for MemberVisitor<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        let fields = if self.checks_names { self.fields } else { &[] };
        self.visitor.visit_map(CheckedMap {
            map,
            fields,
            checks_names: self.checks_names,
        })
    }

    /// Serde would read an array by position.
    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<V::Value, A::Error> {
        Err(A::Error::invalid_type(Unexpected::Seq, &"an object"))
    }
}

struct CheckedMap<A> {
    map: A,
    fields: &'static [&'static str],
    checks_names: bool,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for CheckedMap<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        let fields = self.fields;
        self.map.next_key_seed(CheckedKey {
            inner: seed,
            fields,
        })
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        let names = self.checks_names;
        self.map.next_value_seed(StrictSeed {
            inner: seed,
            checks_names: names,
        })
    }

    fn size_hint(&self) -> Option<usize> {
        self.map.size_hint()
    }
}

/// What stands in an object or an array: its seed, or those who give the elements.
struct StrictSeed<S> {
    inner: S,
    checks_names: bool,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for StrictSeed<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<S::Value, D::Error> {
        let names = self.checks_names;
        self.inner.deserialize(StrictDeserializer {
            inner: d,
            checks_names: names,
        })
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for StrictSeed<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        let names = self.checks_names;
        self.inner.next_element_seed(StrictSeed {
            inner: seed,
            checks_names: names,
        })
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

/// A member's name on its way: first the seed that wants it, then the deserializer that has it, then
/// the visitor that takes it.
struct CheckedKey<T> {
    inner: T,
    fields: &'static [&'static str],
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for CheckedKey<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<S::Value, D::Error> {
        let fields = self.fields;
        self.inner.deserialize(MemberName {
            inner: d,
            fields,
            lifetime: PhantomData,
        })
    }
}

struct MemberName<'de, D> {
    inner: D,
    fields: &'static [&'static str],
    lifetime: PhantomData<&'de ()>,
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for MemberName<'de, D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let fields = self.fields;
        self.inner.deserialize_identifier(CheckedKey {
            inner: visitor,
            fields,
        })
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for CheckedKey<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<V::Value, E> {
        match find_lookalike(name, self.fields) {
            Some(known) => Err(E::custom(lookalike_message(name, known))),
            None => self.inner.visit_str(name),
        }
    }

    fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<V::Value, E> {
        match find_lookalike(name, self.fields) {
            Some(known) => Err(E::custom(lookalike_message(name, known))),
            None => self.inner.visit_borrowed_str(name),
        }
    }
}
