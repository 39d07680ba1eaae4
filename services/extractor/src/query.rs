//! What does a question ask about? For recall: the entities and the person that it names.

use anamnesis_domain::memory::{Entity, EntityKind};
use anamnesis_domain::owner::Subject;
use anamnesis_domain::text::Text;

use crate::fold::fold;
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
}
