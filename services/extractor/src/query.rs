//! What does a question ask about? For recall: the entities and the person that it names.

use std::ops::Range;

use anamnesis_domain::memory::{Entity, EntityKind};
use anamnesis_domain::owner::Subject;
use anamnesis_domain::text::Text;

use crate::fold::{Folded, fold};
use crate::lexicon::{Class, Mention, drug_classes, mentions};
use crate::patterns::drug::drugs;

/// Known drugs (with their classes), diseases, allergens, tests and things that a text names, canonical, each once.
pub fn query_entities(text: &str) -> Vec<Entity> {
    let folded = fold(text);
    let known = mentions(&folded);
    let mut found: Vec<Entity> = Vec::new();
    for drug in drugs(&folded, &known) {
        let classes: Vec<&str> = drug_classes(&drug.name).collect();
        found.push(Entity {
            kind: EntityKind::Drug,
            name: Text::new(drug.name),
        });
        found.extend(classes.into_iter().map(|class| Entity {
            kind: EntityKind::Drug,
            name: Text::new(class),
        }));
    }
    for mention in known {
        if let Some(kind) = entity_kind(&mention) {
            let entity = Entity {
                kind,
                name: Text::new(mention.name),
            };
            // "any" stands for whatever a question asks for (什么), not for a thing.
            if entity.name.expose() != "any" && !found.contains(&entity) {
                found.push(entity);
            }
        }
    }
    found
}

/// Where a text names such things, in its own bytes, in order and without overlaps. Each is one thing:
/// a drug with its classes, a combination, a word that is food and allergen at once.
pub fn query_things(text: &str) -> Vec<Range<usize>> {
    let folded = Folded::of(text);
    let known = mentions(folded.as_str());
    let mut found: Vec<Range<usize>> = drugs(folded.as_str(), &known)
        .into_iter()
        .map(|drug| drug.range)
        .collect();
    for mention in known {
        let is_new = found
            .iter()
            .all(|range| mention.end <= range.start || range.end <= mention.start);
        if is_new && mention.name != "any" && entity_kind(&mention).is_some() {
            found.push(mention.start..mention.end);
        }
    }
    found.sort_by_key(|range| range.start);
    found
        .into_iter()
        .map(|range| folded.original(range))
        .collect()
}

/// Where a text names persons (the asker too), in its own bytes.
pub fn query_persons(text: &str) -> Vec<Range<usize>> {
    let folded = Folded::of(text);
    crate::subject::persons(folded.as_str())
        .into_iter()
        .map(|person| folded.original(person.start..person.end))
        .collect()
}

/// Whom a question is about: the relative that it names, else the asker when it says 我 or "my".
pub fn query_subject(text: &str) -> Option<Subject> {
    crate::subject::of_query(text)
}

pub(crate) fn entity_kind(mention: &Mention) -> Option<EntityKind> {
    match mention.class {
        Class::Drug => Some(EntityKind::Drug),
        Class::Allergen => Some(EntityKind::Allergen),
        Class::Condition | Class::Symptom => Some(EntityKind::Disease),
        Class::Test | Class::Procedure => Some(EntityKind::Test),
        Class::Food => Some(EntityKind::Thing),
        Class::Occupation | Class::Modifier(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let found: Vec<String> = query_entities(text)
            .iter()
            .map(|e| format!("{}:{}", e.kind, e.name.expose()))
            .collect();
        assert_eq!(found.join(" "), expected, "{text}");
    }

    #[test]
    fn a_question_in_either_language_names_the_same_things() {
        check("我能吃华法林吗？", "drug:warfarin drug:anticoagulant");
        check(
            "Is digoxin fine with my asthma?",
            "drug:digoxin disease:asthma",
        );
        check("花生", "allergen:peanut");
        check("有哪些", "");
        check("我对什么过敏？", "");
    }

    #[test]
    fn things_and_persons_are_found_where_they_stand() {
        let cut = |text: &str, ranges: Vec<Range<usize>>| -> Vec<String> {
            ranges
                .into_iter()
                .map(|range| text[range].to_owned())
                .collect()
        };
        let question = "我妈妈能吃阿莫西林克拉维酸钾片和花生吗";
        assert_eq!(
            cut(question, query_things(question)),
            ["阿莫西林克拉维酸钾", "花生"]
        );
        assert_eq!(cut(question, query_persons(question)), ["我妈妈"]);
        let question = "Does my sister take Ｌisinopril?";
        assert_eq!(cut(question, query_things(question)), ["Ｌisinopril"]);
        assert_eq!(cut(question, query_persons(question)), ["my sister"]);
    }
}
