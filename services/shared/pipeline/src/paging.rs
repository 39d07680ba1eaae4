//! Where a page of a listing starts. A cursor repeats the cut of the first page, so that later pages
//! continue what was known when the first one was read, whatever is recorded meanwhile.

use anamnesis_domain::ids::MemoryId;

use crate::stores::{Cut, MemoryVersion, Order, StoreError};

/// Most memories of one page: an answer stays below a few megabytes.
pub const PAGE_VERSIONS_MAX: usize = 500;

/// The last memory of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cursor {
    pub order: Order,
    pub cut: Cut,
    /// `recorded_from`, or `valid_from` in milliseconds.
    pub key: i64,
    pub id: MemoryId,
}

impl Cursor {
    pub fn of(order: Order, cut: Cut, version: &MemoryVersion) -> Self {
        Self {
            order,
            cut,
            key: sort_key(order, version),
            id: version.memory.id,
        }
    }

    pub fn write(self) -> String {
        let order = match self.order {
            Order::Recorded => 'r',
            Order::Valid => 'v',
        };
        format!("{order}.{:x}.{:x}.{}", self.cut.0, self.key as u64, self.id)
    }

    /// # Errors
    /// [`StoreError::Unusable`] for a text that [`Cursor::write`] did not make, or made for another
    /// order.
    pub fn read(text: &str, order: Order) -> Result<Self, StoreError> {
        let error = || StoreError::Unusable {
            what: "the cursor does not belong to this listing".to_owned(),
        };
        let parts: Vec<&str> = text.split('.').collect();
        let [written, cut, key, id] = parts.as_slice() else {
            return Err(error());
        };
        let cursor = Self {
            order,
            cut: Cut(u64::from_str_radix(cut, 16).map_err(|_| error())?),
            key: u64::from_str_radix(key, 16).map_err(|_| error())? as i64,
            id: id.parse().map_err(|_| error())?,
        };
        let is_same_order = cursor.write().starts_with(&format!("{written}."));
        if is_same_order {
            Ok(cursor)
        } else {
            Err(error())
        }
    }

    /// Whether a version comes after this place: smaller key, or the same key and a larger id.
    pub fn is_before(self, version: &MemoryVersion) -> bool {
        let key = sort_key(self.order, version);
        key < self.key || (key == self.key && version.memory.id > self.id)
    }
}

/// What a listing is sorted by, descending; ties by memory id, ascending.
pub fn sort_key(order: Order, version: &MemoryVersion) -> i64 {
    match order {
        Order::Recorded => version.recorded_from as i64,
        Order::Valid => version.memory.standing.valid_from.millis(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_what_it_wrote() {
        let id = MemoryId::from_bytes([0xab; 16]);
        for (order, key) in [(Order::Recorded, 7), (Order::Valid, -86_400_000)] {
            let cursor = Cursor {
                order,
                cut: Cut(12),
                key,
                id,
            };
            assert_eq!(Cursor::read(&cursor.write(), order).unwrap(), cursor);
        }
        let cursor = Cursor {
            order: Order::Recorded,
            cut: Cut(12),
            key: 7,
            id,
        };
        for text in ["", "r", "r.1.2", "x.1.2.m-00", "r.1.2.3.4"] {
            assert!(Cursor::read(text, Order::Recorded).is_err(), "{text}");
        }
        assert!(Cursor::read(&cursor.write(), Order::Valid).is_err());
    }
}
