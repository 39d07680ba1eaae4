//! The named fixed types of the contract, and the checks that numbers and codes pass on their way.

use std::collections::HashSet;

use anamnesis_domain::ids::{
    ErasureId, EventTag, Hash, KeyId, LogId, MemoryId, OwnerKey, RecallId, SourceTag,
};
use anamnesis_domain::memory::Permille;
use anamnesis_domain::time::Timestamp;
use apache_avro::Schema;
use apache_avro::schema::{FixedSchema, Name, NamespaceRef, RecordField};
use apache_avro::serde::AvroSchemaComponent;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::WireError;

/// Longest list in a record. One owner's memories stay far below it, and a reader of any later version
/// can hold that many values within its allocation limit.
pub(crate) const ITEMS_MAX: usize = 65_536;

macro_rules! fixed {
    ($name:ident, $size:literal) => {
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub(crate) struct $name(pub(crate) [u8; $size]);

        impl AvroSchemaComponent for $name {
            fn get_schema_in_ctxt(named: &mut HashSet<Name>, _: NamespaceRef) -> Schema {
                let name = Name::new(concat!("anamnesis.", stringify!($name)))
                    .expect("a constant that is a name");
                if named.insert(name.clone()) {
                    Schema::Fixed(FixedSchema::builder().name(name).size($size).build())
                } else {
                    Schema::Ref { name }
                }
            }

            fn get_record_fields_in_ctxt(
                _: &mut HashSet<Name>,
                _: NamespaceRef,
            ) -> Option<Vec<RecordField>> {
                None
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                apache_avro::serde::fixed::serialize(&self.0, serializer)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                apache_avro::serde::fixed::deserialize(deserializer).map(Self)
            }
        }
    };
}

fixed!(Id, 16);
fixed!(Hash32, 32);
fixed!(Nonce, 24);
fixed!(SchemaId, 8);

macro_rules! ids {
    ($($name:ident),+) => {$(
        impl From<$name> for Id {
            fn from(id: $name) -> Self {
                Self(*id.bytes())
            }
        }

        impl From<Id> for $name {
            fn from(id: Id) -> Self {
                Self::from_bytes(id.0)
            }
        }
    )+};
}
ids!(
    OwnerKey, MemoryId, EventTag, SourceTag, KeyId, ErasureId, RecallId, LogId
);

impl From<Hash> for Hash32 {
    fn from(hash: Hash) -> Self {
        Self(hash.0)
    }
}

impl From<Hash32> for Hash {
    fn from(hash: Hash32) -> Self {
        Self(hash.0)
    }
}

/// Numbers are `long` on the wire; Avro has no unsigned type.
pub(crate) fn to_long(field: &'static str, value: u64) -> Result<i64, WireError> {
    i64::try_from(value).map_err(|_| WireError::Field {
        field,
        problem: "is too large",
    })
}

pub(crate) fn unsigned(field: &'static str, value: i64) -> Result<u64, WireError> {
    u64::try_from(value).map_err(|_| WireError::Field {
        field,
        problem: "is negative",
    })
}

pub(crate) fn narrow<T: TryFrom<i64>>(field: &'static str, value: i64) -> Result<T, WireError> {
    T::try_from(value).map_err(|_| WireError::Field {
        field,
        problem: "is out of range",
    })
}

pub(crate) fn permille(field: &'static str, value: i64) -> Result<Permille, WireError> {
    match u16::try_from(value) {
        Ok(thousandths) if thousandths <= 1000 => Ok(Permille::new(thousandths)),
        Ok(_) | Err(_) => Err(WireError::Field {
            field,
            problem: "is not from 0 to 1000",
        }),
    }
}

/// A value that must be there because of another field.
pub(crate) fn need<T>(field: &'static str, value: Option<T>) -> Result<T, WireError> {
    value.ok_or(WireError::Field {
        field,
        problem: "is missing",
    })
}

/// A code of an open set that this version must know to go on.
pub(crate) fn known<T>(field: &'static str, value: Option<T>) -> Result<T, WireError> {
    value.ok_or(WireError::Field {
        field,
        problem: "holds an unknown code",
    })
}

/// Converts a list on its way out, bounded by [`ITEMS_MAX`].
pub(crate) fn list<T, U>(
    field: &'static str,
    items: &[T],
    convert: impl FnMut(&T) -> Result<U, WireError>,
) -> Result<Vec<U>, WireError> {
    if items.len() > ITEMS_MAX {
        return Err(WireError::Field {
            field,
            problem: "has too many items",
        });
    }
    items.iter().map(convert).collect()
}

pub(crate) fn ids<T: Copy + Into<Id>>(
    field: &'static str,
    items: &[T],
) -> Result<Vec<Id>, WireError> {
    list(field, items, |id| Ok((*id).into()))
}

pub(crate) fn instant(millis: Option<i64>) -> Option<Timestamp> {
    millis.map(Timestamp::from_millis)
}

pub(crate) fn millis(at: Option<Timestamp>) -> Option<i64> {
    at.map(Timestamp::millis)
}
