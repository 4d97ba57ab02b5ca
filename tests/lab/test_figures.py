"""The live figures of a host: memory from its control group, InfiniBand from its network cards."""

from __future__ import annotations

from pathlib import Path

from sparkop.lab.inside import figures

GIB = 1 << 30


def _v1(root: Path) -> Path:
    memory = root / "memory"
    memory.mkdir()
    (memory / "memory.usage_in_bytes").write_text(str(3 * GIB))
    (memory / "memory.stat").write_text(
        f"cache 1\nrss 1\ntotal_cache {2 * GIB}\ntotal_rss {GIB}\ntotal_shmem {GIB}\n"
        f"total_inactive_anon {GIB}\ntotal_active_anon {GIB}\n"
        f"total_inactive_file {GIB // 2}\ntotal_active_file {GIB // 2}\n"
    )
    return root


def _v2(root: Path) -> Path:
    (root / "memory.current").write_text(str(3 * GIB))
    (root / "memory.stat").write_text(
        f"anon {GIB}\nfile {2 * GIB}\nshmem {GIB}\nactive_file {GIB // 2}\ninactive_file {GIB // 2}\n"
        f"active_anon {GIB}\ninactive_anon {GIB}\nslab_reclaimable {GIB // 4}\n"
    )
    return root


def test_page_cache_is_available_and_shared_memory_is_not(tmp_path: Path) -> None:
    """A guard that counts page cache as used fires while weights load; one that frees shm never does."""
    found = figures.memory_figures(_v1(tmp_path), 4 * GIB)
    assert found["MemTotal"] == 4 * GIB
    assert found["MemFree"] == GIB
    assert found["MemAvailable"] == 2 * GIB
    assert found["Cached"] == 2 * GIB
    assert found["Shmem"] == GIB


def test_v2_says_the_same_and_counts_reclaimable_kernel_memory(tmp_path: Path) -> None:
    found = figures.memory_figures(_v2(tmp_path), 4 * GIB)
    assert (found["MemFree"], found["MemAvailable"]) == (GIB, 2 * GIB + GIB // 4)


def test_available_stays_within_the_host(tmp_path: Path) -> None:
    (tmp_path / "memory.current").write_text(str(5 * GIB))
    (tmp_path / "memory.stat").write_text(f"active_file {5 * GIB}\n")
    found = figures.memory_figures(tmp_path, 4 * GIB)
    assert found["MemFree"] == 0
    assert found["MemAvailable"] == 4 * GIB


def test_text_has_one_length_and_the_kernels_form(tmp_path: Path) -> None:
    """It is rewritten in place under readers: a shorter text would leave the tail of the longer one."""
    small = figures.meminfo(dict.fromkeys(figures.memory_figures(_v2(tmp_path), GIB), 0))
    large = figures.meminfo(dict.fromkeys(figures.memory_figures(tmp_path, GIB), 128 * GIB))
    assert len(small) == len(large)
    name, value, unit = large.decode().splitlines()[0].split()
    assert (name, int(value), unit) == ("MemTotal:", 128 << 20, "kB")


def test_gid_of_an_address() -> None:
    """As recorded from a real pair: 192.168.100.10."""
    assert figures.mapped_gid("192.168.100.10") == "0000:0000:0000:0000:0000:ffff:c0a8:640a"
