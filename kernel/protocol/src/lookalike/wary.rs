//! A deserializer that reads structs only from objects, and checks the names of members first.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};

use super::{lookalike, refused};

/// How serde_json marks a raw value.
const RAW: char = '$';

/// Passes everything on, and is wary of structs.
pub(super) struct Wary<D> {
    pub(super) of: D,
    /// Whether lookalikes of members are refused.
    pub(super) names: bool,
}

macro_rules! forward {
    ($($method:ident($($arg:ident: $kind:ty),*)),* $(,)?) => {
        $(fn $method<V: Visitor<'de>>(self, $($arg: $kind,)* visitor: V) -> Result<V::Value, D::Error> {
            self.of.$method($($arg,)* visitor)
        })*
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Wary<D> {
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
        let names = self.names;
        let members = MemberVisitor {
            visitor,
            fields,
            names,
        };
        self.of.deserialize_struct(name, fields, members)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let names = self.names;
        self.of.deserialize_seq(Within { visitor, names })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let names = self.names;
        self.of.deserialize_map(Within { visitor, names })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let names = self.names;
        self.of.deserialize_option(Within { visitor, names })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let names = self.names;
        match name.starts_with(RAW) {
            true => self.of.deserialize_newtype_struct(name, visitor),
            false => self
                .of
                .deserialize_newtype_struct(name, Within { visitor, names }),
        }
    }

    fn is_human_readable(&self) -> bool {
        self.of.is_human_readable()
    }
}

/// What is in an option, a newtype, an array or a map.
struct Within<V> {
    visitor: V,
    names: bool,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Within<V> {
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
        let names = self.names;
        self.visitor.visit_some(Wary { of, names })
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, of: D) -> Result<V::Value, D::Error> {
        let names = self.names;
        self.visitor.visit_newtype_struct(Wary { of, names })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, of: A) -> Result<V::Value, A::Error> {
        let names = self.names;
        self.visitor.visit_seq(Value { of, names })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_map(Looking {
            map,
            fields: &[],
            names: self.names,
        })
    }
}

/// The members of a struct that knows these.
struct MemberVisitor<V> {
    visitor: V,
    fields: &'static [&'static str],
    names: bool,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for MemberVisitor<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        let fields = match self.names {
            true => self.fields,
            false => &[],
        };
        self.visitor.visit_map(Looking {
            map,
            fields,
            names: self.names,
        })
    }

    /// Serde would read an array by position.
    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<V::Value, A::Error> {
        Err(A::Error::invalid_type(Unexpected::Seq, &"an object"))
    }
}

struct Looking<A> {
    map: A,
    fields: &'static [&'static str],
    names: bool,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Looking<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        let fields = self.fields;
        self.map.next_key_seed(WaryKey {
            inner: seed,
            fields,
        })
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        let names = self.names;
        self.map.next_value_seed(Value { of: seed, names })
    }

    fn size_hint(&self) -> Option<usize> {
        self.map.size_hint()
    }
}

/// What stands in an object or an array: its seed, or those who give the elements.
struct Value<S> {
    of: S,
    names: bool,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Value<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<S::Value, D::Error> {
        let names = self.names;
        self.of.deserialize(Wary { of: d, names })
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Value<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        let names = self.names;
        self.of.next_element_seed(Value { of: seed, names })
    }

    fn size_hint(&self) -> Option<usize> {
        self.of.size_hint()
    }
}

/// A member's name on its way: first the seed that wants it, then the deserializer that has it, then
/// the visitor that takes it.
struct WaryKey<T> {
    inner: T,
    fields: &'static [&'static str],
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for WaryKey<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<S::Value, D::Error> {
        let fields = self.fields;
        self.inner.deserialize(MemberName {
            of: d,
            fields,
            lifetime: PhantomData,
        })
    }
}

struct MemberName<'de, D> {
    of: D,
    fields: &'static [&'static str],
    lifetime: PhantomData<&'de ()>,
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for MemberName<'de, D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let fields = self.fields;
        self.of.deserialize_identifier(WaryKey {
            inner: visitor,
            fields,
        })
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for WaryKey<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<V::Value, E> {
        match lookalike(name, self.fields) {
            Some(known) => Err(E::custom(refused(name, known))),
            None => self.inner.visit_str(name),
        }
    }

    fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<V::Value, E> {
        match lookalike(name, self.fields) {
            Some(known) => Err(E::custom(refused(name, known))),
            None => self.inner.visit_borrowed_str(name),
        }
    }
}
