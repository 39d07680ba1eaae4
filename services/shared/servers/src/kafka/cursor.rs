//! Where does one reader stand in one partition? A cursor has a partition of a shared client to itself,
//! with a queue of its own, and knows the offset that comes next. It is moved by being assigned anew, so
//! that nothing of the old place can come from the new queue unnoticed: what lies below is dropped, what
//! lies ahead is told.

use std::cmp::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use anamnesis_domain::time::Timestamp;
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::sync::Semaphore;

use super::append_time::Run;
use super::client::{Context, number};
use super::place::Place;
use super::record::Foreign;

/// The cursors of one partition in the clients of one kind. A client can stand at one place of a
/// partition, so there are as many cursors as clients.
pub(super) struct Cursors {
    pub(super) permits: Semaphore,
    slots: Arc<Mutex<Slots>>,
}

struct Slots {
    idle: Vec<Cursor>,
    is_used: Vec<bool>,
}

/// A client of which this partition is taken; given back on drop. A cursor that waits in the slots must
/// not keep them, nor with them its client.
struct Hold {
    slots: Weak<Mutex<Slots>>,
    lane: usize,
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(slots) = self.slots.upgrade() {
            let mut slots = slots.lock().unwrap_or_else(PoisonError::into_inner);
            slots.is_used[self.lane] = false;
        }
    }
}

/// What is to be done to stand at a place.
pub(super) enum Way {
    There(Cursor),
    Move(Cursor),
    Make(Reserved),
}

/// A client for a cursor that is to be made.
pub(super) struct Reserved(Hold);

impl Reserved {
    pub(super) fn lane(&self) -> usize {
        self.0.lane
    }
}

impl Cursors {
    pub(super) fn new(lanes: usize) -> Self {
        Self {
            permits: Semaphore::new(lanes),
            slots: Arc::new(Mutex::new(Slots {
                idle: Vec::new(),
                is_used: vec![false; lanes],
            })),
        }
    }

    fn with<T>(&self, look: impl FnOnce(&mut Slots) -> T) -> T {
        look(&mut self.slots.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The cursor that stands there, or a client that has none of this partition, or else the cursor
    /// that was used longest ago. Whoever holds a permit gets one of them.
    pub(super) fn find(&self, from: u64) -> Option<Way> {
        self.with(|slots| {
            if let Some(index) = slots.idle.iter().position(|cursor| cursor.next == from) {
                return Some(Way::There(slots.idle.swap_remove(index)));
            }
            if let Some(lane) = slots.is_used.iter().position(|is_used| !is_used) {
                slots.is_used[lane] = true;
                return Some(Way::Make(Reserved(Hold {
                    slots: Arc::downgrade(&self.slots),
                    lane,
                })));
            }
            let longest = (0..slots.idle.len()).min_by_key(|index| slots.idle[*index].used)?;
            Some(Way::Move(slots.idle.swap_remove(longest)))
        })
    }

    pub(super) fn put(&self, mut cursor: Cursor) {
        cursor.used = Instant::now();
        self.with(|slots| slots.idle.push(cursor));
    }

    /// Whether some cursor waits at this place already, or is being used and may.
    pub(super) fn is_waiting_at(&self, end: u64) -> bool {
        self.with(|slots| {
            let in_use = slots.is_used.iter().filter(|is_used| **is_used).count();
            if in_use > slots.idle.len() {
                return true;
            }
            let found = slots.idle.iter_mut().find(|cursor| cursor.next == end);
            found.map(|cursor| cursor.used = Instant::now()).is_some()
        })
    }

    /// Looks into the queues of cursors that nobody uses. Tells the place how far records were seen;
    /// true when a queue says that something is wrong, which the next read will find.
    pub(super) fn peek(&self, place: &Place) -> bool {
        self.with(|slots| {
            let mut is_wrong = false;
            for cursor in &mut slots.idle {
                match cursor.take(place) {
                    Taken::Record(record) => {
                        place.reaches(record.offset + 1);
                        cursor.held = Some(record);
                    }
                    Taken::Ahead(offset) => place.reaches(offset + 1),
                    Taken::Failed(error) => {
                        cursor.failed = Some(error);
                        is_wrong = true;
                    }
                    Taken::Nothing | Taken::End => (),
                }
            }
            is_wrong
        })
    }

    /// Gives up cursors that nobody used for this long.
    pub(super) fn sweep(&self, unused: Duration) {
        let old: Vec<Cursor> = self.with(|slots| {
            let (old, kept) = std::mem::take(&mut slots.idle)
                .into_iter()
                .partition(|cursor| cursor.used.elapsed() > unused);
            slots.idle = kept;
            old
        });
        // Dropped here, without the lock that each of them takes.
        drop(old);
    }
}

pub(super) struct Cursor {
    consumer: Arc<BaseConsumer<Context>>,
    queue: PartitionQueue<Context>,
    /// This one partition, for assigning it.
    name: String,
    partition: u32,
    pub(super) next: u64,
    /// Append time of the record before `next`, where it is known.
    pub(super) before: Option<Timestamp>,
    pub(super) run: Run,
    held: Option<Foreign>,
    failed: Option<KafkaError>,
    used: Instant,
    hold: Hold,
}

pub(super) enum Taken {
    /// The record at `next`.
    Record(Foreign),
    /// The queue is empty.
    Nothing,
    /// The broker had nothing more at the time.
    End,
    /// There is a record at this later offset; it is kept.
    Ahead(u64),
    Failed(KafkaError),
}

impl Cursor {
    /// Blocks for as long as a client needs to take an assignment.
    pub(super) fn make(
        consumer: Arc<BaseConsumer<Context>>,
        reserved: Reserved,
        place: &Arc<Place>,
        from: u64,
        timeout: Duration,
    ) -> Result<Self, KafkaError> {
        // A client that does not know the topic yet forgets a partition that is assigned anew, and its
        // queue with it.
        consumer.fetch_metadata(Some(&place.name), timeout)?;
        // Before the assignment, so that no message of it comes by the client's own queue.
        let mut queue = consumer
            .split_partition_queue(&place.name, number(place.partition))
            .ok_or(KafkaError::Subscription(place.name.clone()))?;
        let arrivals = place.arrivals.clone();
        queue.set_nonempty_callback(move || arrivals.send_modify(|count| *count += 1));
        let cursor = Self {
            consumer,
            queue,
            name: place.name.clone(),
            partition: place.partition,
            next: from,
            before: None,
            run: Run::starting_at(from),
            held: None,
            failed: None,
            used: Instant::now(),
            hold: reserved.0,
        };
        cursor
            .consumer
            .incremental_assign(&cursor.assignment(from)?)?;
        Ok(cursor)
    }

    /// Blocks as [`Cursor::make`].
    pub(super) fn seek(mut self, from: u64) -> Result<Self, KafkaError> {
        self.held = None;
        self.failed = None;
        self.before = None;
        self.run = Run::starting_at(from);
        self.next = from;
        let assignment = self.assignment(from)?;
        self.consumer.incremental_unassign(&assignment)?;
        self.consumer.incremental_assign(&assignment)?;
        Ok(self)
    }

    fn assignment(&self, from: u64) -> Result<TopicPartitionList, KafkaError> {
        let offset =
            i64::try_from(from).map_err(|_| KafkaError::OffsetFetch(Code::OffsetOutOfRange))?;
        let mut list = TopicPartitionList::with_capacity(1);
        list.add_partition_offset(&self.name, number(self.partition), Offset::Offset(offset))?;
        Ok(list)
    }

    /// Never blocks. Whoever takes the record moves on with [`Cursor::pass`].
    pub(super) fn take(&mut self, place: &Place) -> Taken {
        if let Some(error) = self.failed.take() {
            return Taken::Failed(error);
        }
        let Self { held, queue, .. } = self;
        let taken = sift(self.next, || match held.take() {
            Some(held) => Polled::Record(held),
            None => match queue.poll(Duration::ZERO) {
                None => Polled::Nothing,
                Some(Err(KafkaError::PartitionEOF(_))) => Polled::End,
                Some(Err(error)) => Polled::Failed(error),
                Some(Ok(message)) => Polled::Record(Foreign::read(&message, place.topic)),
            },
        });
        match taken {
            Sifted::Ahead(record) => {
                let offset = record.offset;
                self.held = Some(record);
                Taken::Ahead(offset)
            }
            Sifted::Taken(taken) => taken,
        }
    }

    /// Which of the clients it is in.
    pub(super) fn lane(&self) -> usize {
        self.hold.lane
    }

    /// The record at `next` was taken.
    pub(super) fn pass(&mut self) {
        self.next += 1;
    }

    /// Whether the record before `next` came from this queue, since the cursor was put at a place.
    pub(super) fn goes_on(&self) -> bool {
        self.before.is_some()
    }

    /// No record stands before this one, which is kept for the next read.
    pub(super) fn pass_over(&mut self, ahead: u64) {
        self.next = ahead;
        self.run = Run::starting_at(ahead);
    }

    /// Gives back what was taken and not wanted.
    pub(super) fn hold(&mut self, record: Foreign) {
        self.held = Some(record);
    }

    /// What went wrong is for the next read: what came before it is good.
    pub(super) fn fail_later(&mut self, error: KafkaError) {
        self.failed = Some(error);
    }
}

/// What a queue gives when it is asked once.
enum Polled {
    Nothing,
    End,
    Failed(KafkaError),
    Record(Foreign),
}

enum Sifted {
    Taken(Taken),
    Ahead(Foreign),
}

/// What the queue says about the record at `next`.
///
/// After [`Taken::Nothing`] and [`Taken::End`] the queue is empty. Only then does it tell when something comes: a record
/// behind the note of an end would be found only by whoever looks again without being told.
fn sift(next: u64, mut poll: impl FnMut() -> Polled) -> Sifted {
    let mut is_end = false;
    loop {
        let record = match poll() {
            Polled::Nothing if is_end => return Sifted::Taken(Taken::End),
            Polled::Nothing => return Sifted::Taken(Taken::Nothing),
            Polled::End => {
                is_end = true;
                continue;
            }
            Polled::Failed(error) => return Sifted::Taken(Taken::Failed(error)),
            Polled::Record(record) => record,
        };
        match record.offset.cmp(&next) {
            // Of before the cursor was moved.
            Ordering::Less => (),
            Ordering::Equal => return Sifted::Taken(Taken::Record(record)),
            Ordering::Greater => return Sifted::Ahead(record),
        }
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        // It fails when the assignment never was, and there is nothing to undo then.
        if let Ok(assignment) = self.assignment(self.next) {
            let _ = self.consumer.incremental_unassign(&assignment);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anamnesis_domain::input::Topic;
    use rdkafka::config::ClientConfig;
    use rdkafka::mocking::MockCluster;

    fn foreign(offset: u64) -> Polled {
        Polled::Record(Foreign {
            offset,
            own_time: Timestamp::from_millis(0),
            key: None,
            payload: None,
            headers: Vec::new(),
            lack: None,
        })
    }

    /// Sifts a queue for the record at 7, and says what came and how much is left in it.
    fn sifted(queue: Vec<Polled>) -> (String, usize) {
        let mut left = queue.into_iter();
        let came = match sift(7, || left.next().unwrap_or(Polled::Nothing)) {
            Sifted::Ahead(record) => format!("ahead {}", record.offset),
            Sifted::Taken(Taken::Record(record)) => format!("record {}", record.offset),
            Sifted::Taken(Taken::Nothing) => "nothing".to_owned(),
            Sifted::Taken(Taken::End) => "end".to_owned(),
            Sifted::Taken(Taken::Ahead(_) | Taken::Failed(_)) => "failed".to_owned(),
        };
        (came, left.count())
    }

    #[test]
    fn a_record_behind_the_note_of_an_end_is_found_at_once() {
        let check = |queue, came: &str, left| assert_eq!(sifted(queue), (came.to_owned(), left));
        check(vec![], "nothing", 0);
        check(vec![Polled::End], "end", 0);
        check(vec![Polled::End, Polled::End], "end", 0);
        check(vec![Polled::End, foreign(7), foreign(8)], "record 7", 1);
        check(vec![foreign(6), Polled::End, foreign(7)], "record 7", 0);
        check(vec![foreign(5), foreign(6)], "nothing", 0);
        check(vec![Polled::End, foreign(9), foreign(10)], "ahead 9", 1);
        let failed = Polled::Failed(KafkaError::OffsetFetch(Code::OffsetOutOfRange));
        check(vec![Polled::End, failed, foreign(7)], "failed", 1);
    }

    #[test]
    fn a_cursor_that_waits_does_not_keep_its_client() {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("t.memories", 1, 1).unwrap();
        let mut settings = ClientConfig::new();
        settings
            .set("bootstrap.servers", cluster.bootstrap_servers())
            .set("group.id", "readers");
        let client = settings.create_with_context(Context::default()).unwrap();
        let client: Arc<BaseConsumer<Context>> = Arc::new(client);
        let place = Arc::new(Place::new(Topic::Memories, 0, "t.memories".to_owned()));
        let cursors = Cursors::new(1);
        let Some(Way::Make(reserved)) = cursors.find(0) else {
            panic!("no client is taken yet");
        };
        let within = Duration::from_secs(10);
        cursors.put(Cursor::make(client.clone(), reserved, &place, 0, within).unwrap());
        assert!(Arc::strong_count(&client) > 1);
        drop(cursors);
        assert_eq!(Arc::strong_count(&client), 1);
    }
}
