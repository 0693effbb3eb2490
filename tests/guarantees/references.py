"""Tests elsewhere that show a failure or a guarantee, and failures that no test shows, with the reason."""

from tests.guarantees.marks import Held, Shown

_REAL, _PROCESSES, _RECORDED, _FAKE, _SSH = "real systemd", "real processes", "recorded", "fake", "real SSH client"
_PREFLIGHT = "tests/services/systemd/test_systemd_preflight.py::test_"
_PROPERTIES = "tests/services/systemd/test_systemd_properties.py::test_"
_QUOTING = "tests/services/systemd/test_systemd_quoting.py::test_"
_FREEING = "tests/gpus/test_gpus_freeing.py::test_"
_RUN = "tests/trials/test_trials_run.py::test_"
_DEATH = "tests/trials/test_trials_death.py::test_"
_JOURNAL = "tests/trials/test_trials_journal.py::test_"
_SWEEP = "tests/real/test_real_sweep.py::test_"
_OVER_SSH = "tests/real/test_real_ssh.py::test_"
_ADOPT = "tests/trials/test_trials_adopt.py::test_"
_ENGINES = "tests/engines/test_engines_"

_ROWS: tuple[tuple[int, str, str, str, str], ...] = (
    (
        1,
        f"{_PREFLIGHT}names_that_are_near_are_suggested",
        "a misspelt name",
        "refused, with names that are near",
        _REAL,
    ),
    (1, f"{_PREFLIGHT}an_alias_is_told_its_name", "Alias=", "refused, with the unit's own name", _REAL),
    (1, f"{_PREFLIGHT}a_template_needs_an_instance", "a template unit", "refused; its instances are named", _REAL),
    (2, f"{_PREFLIGHT}states_in_which_nothing_serves", "inactive, failed, activating, auto-restart", "refused", _REAL),
    (
        3,
        f"{_PREFLIGHT}masked_units_are_told_how_to_unmask",
        "systemctl mask, with and without --runtime",
        "refused",
        _REAL,
    ),
    (
        3,
        f"{_PREFLIGHT}an_empty_file_is_what_a_full_disk_left",
        "a unit file of 0 bytes",
        "refused, and told apart",
        _REAL,
    ),
    (
        4,
        f"{_PREFLIGHT}units_that_cannot_be_tried",
        "RefuseManualStop=, RefuseManualStart=, Type=oneshot …",
        "refused",
        _REAL,
    ),
    (
        5,
        f"{_PREFLIGHT}a_user_without_rights_is_told_before_anything_happens",
        "another user without polkit rights",
        "refused before anything happens, with how to run it",
        _REAL,
    ),
    (
        6,
        f"{_JOURNAL}a_lock_whose_holder_was_killed_is_taken_and_named",
        "a process that is killed while it holds the lock",
        "the lock is taken, the dead trial named",
        _PROCESSES,
    ),
    (
        6,
        f"{_JOURNAL}a_recycled_pid_is_not_taken_for_the_holder",
        "a lock of an earlier boot with a pid that lives",
        "it is known to be stale, by start time and boot id",
        _FAKE,
    ),
    (
        7,
        f"{_SWEEP}the_disk_full_from_every_write_on",
        "every write of the driver from the n-th on fails, for every second n (`make torture`: every n)",
        "refused with nothing changed, or ended with the service back",
        _REAL,
    ),
    (
        7,
        "tests/hosts/test_hosts_local.py::test_a_full_disk_leaves_the_old_file",
        "a write to a full tmpfs",
        "the old file stays whole; a file of 0 bytes never appears",
        _PROCESSES,
    ),
    (
        8,
        f"{_PROPERTIES}a_drop_in_of_a_prefix_leaks_into_the_copy",
        "a drop-in of the prefix that applies to the copy alone",
        "the difference is found before the original is stopped",
        _REAL,
    ),
    (
        8,
        f"{_PROPERTIES}a_drop_in_of_the_same_name_shadows_the_copied_one",
        "a drop-in in /etc with the name of a copied one",
        "the difference is found",
        _REAL,
    ),
    (9, f"{_QUOTING}nasty_words_come_back_equal", "nasty words through a unit file and D-Bus", "equal", _REAL),
    (9, f"{_QUOTING}any_command_comes_back_equal", "random words, the same way", "equal", _REAL),
    (
        12,
        f"{_PREFLIGHT}what_belongs_to_the_name_needs_a_drop_in",
        "DynamicUser=, StateDirectory=, %i …",
        "a drop-in",
        _REAL,
    ),
    (
        19,
        f"{_FREEING}a_living_process_of_the_service_is_never_free",
        "random readings with a living process",
        "never taken for free",
        _FAKE,
    ),
    (20, f"{_FREEING}a_neighbour_that_shrank_does_not_hide_what_is_left", "readings", "what is left is found", _FAKE),
    (
        21,
        f"{_FREEING}where_bytes_are_not_told_no_process_is_enough_and_that_is_said",
        "memory told as N/A (a machine that shares it)",
        "no process left is enough, and that is said",
        _RECORDED,
    ),
    (
        21,
        f"{_FREEING}a_mig_instance_is_judged_for_itself",
        "readings of MIG instances",
        "each judged for itself",
        _RECORDED,
    ),
    (
        28,
        f"{_ENGINES}vllm_failures.py::test_real_failed_starts_of_0_32_give_their_reason_in_one_line",
        "logs of real failed starts: draft missing, gated, unknown method, vocabulary …",
        "the cause in one line",
        _RECORDED,
    ),
    (
        29,
        f"{_ENGINES}vllm_failures.py::test_real_failed_starts_of_0_32_give_their_reason_in_one_line",
        "the same",
        "the same",
        _RECORDED,
    ),
    (
        33,
        f"{_RUN}speculation_that_drafts_nothing_is_found",
        "counters that stay at zero",
        "a finding; not faster",
        _PROCESSES,
    ),
    (
        34,
        f"{_ENGINES}vllm_confounders.py::test_on_a_cpu_asynchronous_scheduling_is_off_in_every_arm_whatever_the_log_blames",
        "effective configurations of real starts",
        "second differences are confounders in the record, and only real ones",
        _RECORDED,
    ),
    (
        36,
        "tests/services/systemd/test_systemd_journal.py::test_a_journal_that_is_rotated_is_read_on",
        "journalctl --rotate while a unit speaks",
        "no line is lost",
        _REAL,
    ),
    (
        37,
        f"{_ENGINES}vllm_failures.py::test_a_good_start_gives_no_reason_though_it_prints_the_word_error",
        "a log of a real good start",
        "no reason is found",
        _RECORDED,
    ),
    (38, f"{_RUN}corrupted_output_overrides_faster", "every 5th token is another", "error, not faster", _PROCESSES),
    (
        39,
        f"{_RUN}failing_requests_are_rows_and_too_many_end_the_trial",
        "HTTP 500",
        "rows; too many end it",
        _PROCESSES,
    ),
    (
        40,
        f"{_RUN}a_server_without_metrics_is_measured_all_the_same",
        "404 for /metrics",
        "measured, and said",
        _PROCESSES,
    ),
    (40, f"{_RUN}a_counter_reset_is_found_and_its_counts_are_dropped", "counters from zero", "no counts", _PROCESSES),
    (
        41,
        f"{_RUN}foreign_requests_are_found",
        "requests of others in the counters",
        "a finding; inconclusive",
        _PROCESSES,
    ),
    (
        42,
        "tests/bench/test_bench_points.py::test_blocks_at_different_clocks_are_told_apart",
        "readings of clocks that differ between arms",
        "a finding",
        _FAKE,
    ),
    (43, f"{_RUN}a_server_that_dies_in_the_middle", "the process ends at a request", "exit code 6", _PROCESSES),
    (
        44,
        "tests/verdicts/test_verdicts_output_check.py::test_the_threshold_is_twice_the_baselines_largest_gap",
        "a baseline whose own outputs have gaps",
        "the variant is held to twice of that",
        _FAKE,
    ),
    (
        45,
        "tests/public_reports/test_reports_d_comparisons.py::test_30_vllm_54227_a_warmer_prefix_cache_is_found",
        "a cache that is warm in the variant alone",
        "a finding; not faster",
        _PROCESSES,
    ),
    (
        46,
        "tests/verdicts/test_verdicts_compare.py::test_one_prompt_is_inconclusive_with_its_figures",
        "one prompt",
        "inconclusive, with its figures",
        _FAKE,
    ),
    (
        55,
        f"{_SWEEP}the_driver_killed_around_every_change_to_the_host",
        "SIGKILL of the driver at each state of the host that it makes, parallel and drop-in with company",
        "the host puts the service back and writes the record; nothing is left",
        _REAL,
    ),
    (
        56,
        f"{_SWEEP}the_restore_killed_around_every_step",
        "SIGKILL of the restore script around each of its commands (`make torture`: on both sides)",
        "it is run again until it is verified; nothing is left",
        _REAL,
    ),
    (
        57,
        f"{_DEATH}ctrl_c_twice_does_not_skip_the_restore",
        "SIGINT twice to a trial of a process",
        "restored",
        _PROCESSES,
    ),
    (
        58,
        f"{_OVER_SSH}a_connection_that_drops_in_every_phase",
        "the server cuts the connection in every phase of a trial",
        "the client reconnects and shows each event once; the trial goes on",
        _SSH,
    ),
    (58, f"{_OVER_SSH}a_connection_that_falls_silent", "half-open TCP", "given up and made again", _SSH),
    (
        59,
        f"{_SWEEP}a_reboot_at_every_change",
        "a power cut at every fourth change (`make torture`: each), original enabled and not",
        "the original serves after the boot; the next restore writes the record",
        _REAL,
    ),
    (
        61,
        f"{_JOURNAL}what_was_written_survives_a_kill_at_once",
        "SIGKILL right after a write",
        "it is there",
        _PROCESSES,
    ),
    (61, f"{_JOURNAL}a_journal_of_a_later_version_is_refused", "a later schema version", "refused in a line", _FAKE),
    (
        61,
        "tests/trials/driver/test_driver_events.py::test_a_growing_log_is_read_once_in_whole_lines",
        "a log of events that ends in half a line",
        "whole lines are read, once",
        _FAKE,
    ),
    (
        62,
        "tests/hosts/test_hosts_faulty.py::test_a_full_disk_leaves_half_a_temporary_file_and_the_old_one",
        "a write that ends in the middle of its temporary file",
        "the old file is whole: written beside it, synced, renamed, the folder synced",
        _FAKE,
    ),
    (
        63,
        f"{_OVER_SSH}a_trial_from_another_machine",
        "a second trial, from the serving machine and over SSH",
        "refused with who is at work",
        _SSH,
    ),
)

REFERRED = [Shown(number, test, produced, outcome, how) for number, test, produced, outcome, how in _ROWS]

HELD = [
    Held(guarantee, test, what)
    for guarantee, test, what in (
        ("G1", f"{_SWEEP}the_driver_killed_around_every_change_to_the_host", "killed at every change"),
        ("G1", f"{_SWEEP}a_reboot_at_every_change", "and through a reboot at every change"),
        ("G3", f"{_SWEEP}the_driver_killed_around_every_change_to_the_host", "hashes and settings before and after"),
        ("G6", f"{_SWEEP}the_restore_killed_around_every_step", "killed at every step and run again"),
        (
            "G7",
            f"{_SWEEP}a_driver_that_hangs_is_ended_when_the_downtime_is_over",
            "a driver that hangs is ended by a timer",
        ),
        ("G11", f"{_ADOPT}only_faster_is_adopted", "every other verdict is refused"),
        ("G12", f"{_RUN}corrupted_output_overrides_faster", "wrong text"),
        ("G12", f"{_ADOPT}only_the_same_output_is_adopted_whatever_the_speed", "and no adoption"),
        ("G13", f"{_ENGINES}counts.py::test_a_missing_window_makes_the_sum_missing", "counts"),
        (
            "G13",
            "tests/verdicts/test_verdicts_compare.py::test_a_prompt_whose_clock_stood_still_is_missing_not_zero",
            "times",
        ),
        (
            "G15",
            "tests/verdicts/test_verdicts_compare.py::test_the_same_record_gives_the_same_result_in_any_order_of_rows",
            "rows in any order",
        ),
        ("G17", f"{_RUN}the_files_of_a_trial", "rows, logs by start, metrics, journal"),
        ("G19", "tests/real/test_real_adopt.py::test_a_trial_by_itself_adopts_nothing", "on a real unit"),
    )
]

UNTESTED: dict[int, str] = {}
"""Failures that no test shows → why."""
