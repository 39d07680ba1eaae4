//! Which kinds and attributes exist and how each behaves. The table is data (`data/*.json`); this file
//! reads it once and answers questions about it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use serde::Deserialize;

use crate::memory::{Kind, Permille};

/// How one kind of memory behaves.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KindRule {
    pub kind: Kind,
    /// Recency halves after so many days (`domain.md` §5).
    pub half_life_days: u32,
    /// Never evicted, reserved place in recall, contradiction always goes to a person.
    pub protected: bool,
    /// L1 to L4.
    pub sensitivity: u8,
    /// Value score of a candidate of this kind; below 3 it is dropped.
    pub weight: u32,
    /// Importance unless told otherwise.
    pub importance: Permille,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Values {
    /// A new value replaces the old one.
    One,
    /// A new value adds; only the same value again can replace what was said about it.
    Many,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttributeRule {
    pub name: String,
    pub kind: Kind,
    pub values: Values,
}

/// The tables, read from the data that is compiled in.
#[derive(Clone, PartialEq, Debug)]
pub struct Attributes {
    kinds: BTreeMap<Kind, KindRule>,
    attributes: BTreeMap<String, AttributeRule>,
    /// Canonical names of allergens by sort; one may be of several.
    allergens: BTreeMap<String, BTreeSet<String>>,
}

impl Attributes {
    /// The shipped tables.
    pub fn shipped() -> &'static Self {
        static SHIPPED: OnceLock<Attributes> = OnceLock::new();
        SHIPPED.get_or_init(|| {
            let kinds: Vec<KindRule> = serde_json::from_str(include_str!("../data/kinds.json"))
                .expect("the kinds table is checked by a test");
            let attributes: Vec<AttributeRule> =
                serde_json::from_str(include_str!("../data/attributes.json"))
                    .expect("the attributes table is checked by a test");
            let allergens = serde_json::from_str(include_str!("../data/allergens.json"))
                .expect("the table of allergens is checked by a test");
            Self {
                allergens,
                kinds: kinds.into_iter().map(|rule| (rule.kind, rule)).collect(),
                attributes: attributes
                    .into_iter()
                    .map(|rule| (rule.name.clone(), rule))
                    .collect(),
            }
        })
    }

    pub fn kind(&self, kind: Kind) -> &KindRule {
        self.kinds
            .get(&kind)
            .expect("every kind has a rule; a test checks it")
    }

    /// `None` for an attribute that the table does not name; it then holds many values.
    pub fn attribute(&self, name: &str) -> Option<&AttributeRule> {
        self.attributes.get(name)
    }

    pub fn holds_one_value(&self, attribute: &str) -> bool {
        self.attribute(attribute)
            .is_some_and(|rule| rule.values == Values::One)
    }

    /// The sorts of which an allergen is: `drug`, `food`, `environment`. None for a name that the table
    /// does not know: it may be of any.
    pub fn sorts_of_allergen(&self, name: &str) -> Vec<&str> {
        self.allergens
            .iter()
            .filter(|(_, names)| names.contains(name))
            .map(|(sort, _)| sort.as_str())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_rule_and_every_attribute_a_known_kind() {
        let table = Attributes::shipped();
        for kind in Kind::ALL {
            assert_eq!(table.kind(*kind).kind, *kind);
        }
        assert!(table.holds_one_value("smoking_status"));
        assert!(!table.holds_one_value("allergy"));
        assert!(!table.holds_one_value("something_new"));
    }

    #[test]
    fn an_allergen_may_be_of_several_sorts_and_an_unknown_one_is_of_none() {
        let table = Attributes::shipped();
        assert_eq!(table.sorts_of_allergen("peanut"), ["food"]);
        assert_eq!(table.sorts_of_allergen("pollen"), ["environment"]);
        assert_eq!(
            table.sorts_of_allergen("alcohol"),
            ["drug", "environment", "food"]
        );
        assert!(table.sorts_of_allergen("something new").is_empty());
    }
}
