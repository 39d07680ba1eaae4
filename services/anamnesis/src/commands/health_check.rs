//! `health-check`: what is expired, in conflict, waiting or over capacity; acts only when told.

use anamnesis_domain::memory::Status;
use anamnesis_domain::owner::OwnerScope;
use anamnesis_domain::time::Known;
use anamnesis_forgetter::plan;
use anamnesis_pipeline::stores::{Filter, Order, SubjectFilter};

use crate::cli::{Exit, HealthCheckArgs};
use crate::config::Config;
use crate::failure::Failure;
use crate::node::Node;

/// # Errors
/// When the data folder cannot be read.
pub async fn run(config: Config, args: HealthCheckArgs) -> Result<Exit, Failure> {
    let node = Node::open_tool(config).await?;
    node.settle().await?;
    let now = node.clock.now();
    let records = &node.stores.records;
    let capacity = node.config.forget.capacity_per_owner as usize;
    let only = args
        .owner
        .as_ref()
        .map(|owner| node.codec.keys().id_key().owner(owner));
    let (mut expired, mut conflicted, mut waiting, mut over) = (0, 0, 0, 0);
    for key in records.owners().await? {
        if only.is_some_and(|only| only != key) {
            continue;
        }
        let scope = OwnerScope::of_log_record(key);
        let filter = Filter {
            scope,
            cut: records.cut(scope, Known::Latest).await?,
            valid_at: None,
            time_range: None,
            kinds: None,
            statuses: Status::ALL.to_vec(),
            subject: SubjectFilter::Any,
            context_tags: None,
        };
        let mut memories = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let page = records
                .list(&filter, Order::Recorded, 500, cursor.as_deref())
                .await?;
            memories.extend(page.versions.into_iter().map(|version| version.memory));
            cursor = page.cursor;
            if cursor.is_none() {
                break;
            }
        }
        for memory in &memories {
            let standing = &memory.standing;
            let is_over = standing.valid_to.is_some_and(|to| to <= now);
            match standing.status {
                Status::Active if is_over => expired += 1,
                Status::Conflicted => conflicted += 1,
                Status::PendingReview => waiting += 1,
                Status::Active
                | Status::Superseded
                | Status::Retired
                | Status::Archived
                | Status::Restricted
                | Status::Erased => (),
            }
        }
        over += plan::over_capacity(&memories, capacity, now).len();
    }
    crate::say!(
        "{expired} expired, {conflicted} in conflict, {waiting} waiting for review, {over} over \
         capacity"
    );
    if args.apply {
        let look = node.forgetter().look().await?;
        node.settle().await?;
        crate::say!(
            "archived {}, {} keys expired",
            look.archived,
            look.keys_expired
        );
    }
    Ok(Exit::Fine)
}
