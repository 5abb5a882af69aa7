//! What clients may have at once, where the operator has said so: requests that run, and tokens within a time.
//!
//! Tokens are reserved before a request starts and settled when it ends with what it has used, so a large limit that was not
//! needed costs nothing. A request goes as long as anything is left; what it takes beyond that is owed and refilled first.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Allowance, Ask};

/// One client's account.
#[derive(Clone, Debug, Default, PartialEq)]
struct Account {
    budget: Option<(u64, Duration)>,
    running: u64,
    waiting: u64,
    /// Tokens that what runs may use.
    reserved: u64,
    /// Tokens that it has used and that are not refilled, as of when.
    used: (f64, Duration),
}

impl Account {
    fn used(&self, now: Duration) -> f64 {
        let (used, then) = self.used;
        let refilled = now.saturating_sub(then).as_secs_f64() * self.rate();
        (used - refilled).max(0.0)
    }

    /// Tokens a second.
    fn rate(&self) -> f64 {
        self.budget.map_or(f64::INFINITY, |(tokens, within)| tokens as f64 / within.as_secs_f64().max(1e-3))
    }

    /// Until less than the budget is used, if so many tokens are used beside those that are settled.
    fn until_some_are_left(&self, beside: u64, now: Duration) -> Duration {
        const GRAIN: f64 = 1e-6;
        let Some((tokens, _)) = self.budget else { return Duration::ZERO };
        let owed = self.used(now) + beside as f64 - tokens as f64;
        if owed <= GRAIN { Duration::ZERO } else { super::backend::seconds((owed / self.rate()).min(1e9)) }
    }
}

/// The accounts of those that have an allowance.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Accounts(BTreeMap<u64, Account>);

impl Accounts {
    fn of(&mut self, ask: &Ask) -> Option<&mut Account> {
        if ask.allowance == Allowance::default() {
            return None;
        }
        let account = self.0.entry(ask.account).or_default();
        account.budget = ask.allowance.tokens;
        Some(account)
    }

    pub(super) fn waits(&mut self, ask: &Ask) {
        if let Some(account) = self.of(ask) {
            account.waiting += 1;
        }
    }

    pub(super) fn waits_no_more(&mut self, ask: &Ask, now: Duration) {
        if let Some(account) = self.of(ask) {
            account.waiting = account.waiting.saturating_sub(1);
        }
        self.forget(now);
    }

    /// A request is admitted that may use so many tokens.
    pub(super) fn starts(&mut self, ask: &Ask, tokens: u64) {
        if let Some(account) = self.of(ask) {
            account.running += 1;
            account.reserved = account.reserved.saturating_add(tokens);
        }
    }

    /// It has ended: so many tokens were reserved, so many used.
    pub(super) fn ends(&mut self, number: u64, reserved: u64, used: u64, now: Duration) {
        if let Some(account) = self.0.get_mut(&number) {
            account.running = account.running.saturating_sub(1);
            account.reserved = account.reserved.saturating_sub(reserved);
            account.used = (account.used(now) + used as f64, now);
        }
        self.forget(now);
    }

    fn forget(&mut self, now: Duration) {
        self.0.retain(|_, account| {
            account.running + account.waiting > 0 || (account.budget.is_some() && account.used(now) > 0.0)
        });
    }

    pub(super) fn may_run_one_more(&self, ask: &Ask) -> bool {
        let running = self.0.get(&ask.account).map_or(0, |account| account.running);
        ask.allowance.running.is_none_or(|most| running < most.max(1))
    }

    /// Until one more request of it may go, as far as tokens go; nothing if it may.
    pub(super) fn until_tokens(&self, ask: &Ask, now: Duration) -> Duration {
        self.until(ask, now, |account| account.reserved)
    }

    /// The same, if what runs used nothing: sooner it cannot be.
    pub(super) fn until_tokens_at_best(&self, ask: &Ask, now: Duration) -> Duration {
        self.until(ask, now, |_| 0)
    }

    fn until(&self, ask: &Ask, now: Duration, beside: impl Fn(&Account) -> u64) -> Duration {
        let account = self.0.get(&ask.account).filter(|_| ask.allowance.tokens.is_some());
        account.map_or(Duration::ZERO, |account| account.until_some_are_left(beside(account), now))
    }
}
