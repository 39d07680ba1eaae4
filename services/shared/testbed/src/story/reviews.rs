//! Steps of a story in which a platform sends an event as it is, or a person is asked and decides.

use anamnesis_domain::input::Verdict;
use anamnesis_domain::memory::Kind;
use anamnesis_domain::owner::Owner;
use anamnesis_intake::commands::{Order, ReviewId};
use anamnesis_intake::request::ReviewDecision;
use anamnesis_intake::service::IntakeError;
use anamnesis_pipeline::caller::Caller;
use anamnesis_recall::reviews::{Asked, Item, State};

use super::{Decides, Play, Step, TENANT, fits};

impl Play {
    pub(super) async fn send(
        &mut self,
        step: &Step,
        owner: &Owner,
        event: &str,
    ) -> Result<(), String> {
        self.grant(owner).await?;
        let value = serde_json::from_str(event).map_err(|error| error.to_string())?;
        let caller = Caller::local(TENANT);
        let answer = self
            .intake
            .accept_values(&caller, &[value], None)
            .await
            .map_err(|error| error.to_string())?;
        let refused = answer.rejected.first().map(|rejected| {
            let field = rejected.field.as_deref().unwrap_or("-");
            format!("{} {field}", rejected.code)
        });
        if refused != step.refused {
            return Err(format!("refused: {refused:?}, not {:?}", step.refused));
        }
        self.settle().await
    }

    pub(super) async fn check_reviews(&self, step: &Step, owner: &Owner) -> Result<(), String> {
        let items = self.items(owner, State::Open).await?;
        let shown: Vec<String> = items.iter().map(in_words).collect();
        for wanted in &step.asked_of_a_person {
            if !shown.iter().any(|item| fits(item, wanted)) {
                return Err(format!("nobody is asked \"{wanted}\": {shown:?}"));
            }
        }
        match step.open_reviews {
            Some(count) if count != shown.len() => {
                Err(format!("{} are open, not {count}: {shown:?}", shown.len()))
            }
            Some(_) | None => Ok(()),
        }
    }

    async fn items(&self, owner: &Owner, state: State) -> Result<Vec<Item>, String> {
        let asked = Asked {
            owner,
            scope: self.scope(owner),
            state,
            kinds: Kind::ALL.to_vec(),
            limit: 200,
            cursor: None,
        };
        let page = self.recall.reviews(&asked).await;
        Ok(page.map_err(|error| error.to_string())?.reviews)
    }

    pub(super) async fn decide(&mut self, owner: &Owner, decides: &Decides) -> Result<(), String> {
        let state = decides.state.as_deref().unwrap_or("open");
        let state = State::parse(state).ok_or("no such state of a review")?;
        let items = self.items(owner, state).await?;
        let item = items
            .iter()
            .find(|item| fits(&in_words(item), &decides.about));
        let Some(item) = item else {
            let shown: Vec<String> = items.iter().map(in_words).collect();
            return Err(format!("nobody is asked \"{}\": {shown:?}", decides.about));
        };
        let id = ReviewId::parse(&item.id).ok_or("an item has no id")?;
        let verdict = Verdict::from_code(&decides.verdict).ok_or("no such verdict")?;
        let mut caller = Caller::local(TENANT);
        caller.name.clone_from(&decides.by);
        let order = Order {
            caller: &caller,
            owner,
            key: None,
        };
        let ask = ReviewDecision::new(verdict, "looked at");
        let refused = match self.intake.review(&order, id, &ask).await {
            Ok(ordered) => {
                self.settle().await?;
                let records = &self.ground.stores.records;
                let decision = records.decision(ordered.scope, ordered.event).await;
                let outcome = decision
                    .map_err(|error| error.to_string())?
                    .map_or("undecided".to_owned(), |row| row.outcome);
                (outcome != "stored").then_some(outcome)
            }
            Err(IntakeError::Refused(problem)) => Some(problem.code.to_string()),
            Err(error) => return Err(error.to_string()),
        };
        if refused != decides.refused {
            return Err(format!("refused: {refused:?}, not {:?}", decides.refused));
        }
        Ok(())
    }
}

fn in_words(item: &Item) -> String {
    let text = |side: &serde_json::Value| side["text"].as_str().unwrap_or("").to_owned();
    let decision = item.decision.as_ref().map_or(String::new(), |decision| {
        let part = |name: &str| decision[name].as_str().unwrap_or("").to_owned();
        format!("{} {}", part("decision"), part("by"))
    });
    format!(
        "{} | {} | {} {} {decision}",
        text(&item.new),
        text(&item.old),
        item.why,
        item.rule.as_deref().unwrap_or("")
    )
}
