//! Short words for tests that tell a story by hand.

use anamnesis_domain::memory::Role;
use anamnesis_domain::text::Text;
use anamnesis_testbed::spec::Spec;
use anamnesis_testbed::world::{Said, World, day};

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

pub(crate) fn said(owner: &str, event_id: &str, at: i64, text: &str) -> Said {
    Said {
        owner: owner.to_owned(),
        source: "chat".to_owned(),
        event_id: event_id.to_owned(),
        at: day(at),
        zone_minutes: 480,
        role: Role::User,
        text: Text::new(text),
    }
}

/// Says one claim in a message of its own, from the source `chat`.
pub(crate) async fn say(world: &World, owner: &str, event_id: &str, at: i64, spec: &str) {
    say_from(world, "chat", owner, event_id, at, spec).await;
}

pub(crate) async fn say_from(
    world: &World,
    source: &str,
    owner: &str,
    event_id: &str,
    at: i64,
    spec: &str,
) {
    let mut said = said(owner, event_id, at, spec);
    said.source = source.to_owned();
    world
        .say(&said, |turn| {
            let spec = Spec::parse(spec).unwrap();
            vec![spec.claim(None, turn.at, World::source_of(turn))]
        })
        .await;
}
