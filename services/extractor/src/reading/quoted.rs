//! What does a sentence say in the quoted words of somebody else?

use anamnesis_domain::memory::{Entity, EntityKind};
use anamnesis_domain::owner::Subject;
use anamnesis_domain::text::Text;

use super::{Heard, Reader, WHOLE};
use crate::repair;
use crate::scene::Known;
use crate::sentence::sentences;

impl Reader {
    /// What a quoted person said of themselves is theirs.
    pub(super) fn add_quoted(&self, folded: &str, heard: &mut Vec<(usize, Heard)>) {
        for quoted in repair::quoted(folded) {
            let mut reader = Self::new(self.clock, Known::default());
            for sentence in sentences(&quoted.words) {
                let statement = reader.read(&quoted.words, sentence);
                if statement.is_question || statement.asks_to_keep {
                    continue;
                }
                let own = statement
                    .heard
                    .into_iter()
                    .filter(|one| one.subject == Subject::Self_ && one.refused.is_none());
                for one in own {
                    for who in &quoted.who {
                        let mut entities = one.entities.clone();
                        entities.push(Entity {
                            kind: EntityKind::Person,
                            name: Text::new(who.to_string()),
                        });
                        let theirs = Heard {
                            subject: who.clone(),
                            quote: WHOLE.to_owned(),
                            entities,
                            ..one.clone()
                        };
                        heard.push((0, theirs));
                    }
                }
            }
        }
    }
}
