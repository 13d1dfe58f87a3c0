"""Devices, links and clusters: published figures, and sentences for names nobody knows."""

import math
import re

import pytest

from lockstep.hardware import DEVICES, LINKS, Cluster, Device, Link, cluster, device, link


def test_every_figure_says_where_it_was_published():
    for entry in [*DEVICES.values(), *LINKS.values()]:
        assert re.search(r"\b(19|20)\d\d\b|roadmap", entry.source)


def test_a100_and_h100_as_their_datasheets_print_them_without_sparsity():
    assert device("a100").rate("bfloat16") == 312e12
    assert device("A100").memory_bandwidth == 2039e9
    assert device("H100").rate("bfloat16") == pytest.approx(1979e12 / 2)


def test_link_bandwidths_count_one_direction():
    assert link("NVLink3").bandwidth == 600e9 / 2
    assert link("PCIe4").bandwidth == pytest.approx(31.5e9, rel=1e-3)
    assert link("HDR").bandwidth == 200e9 / 8


def test_a_message_takes_latency_plus_bytes_over_bandwidth():
    assert Link(1e-6, 1e9).seconds(4000) == pytest.approx(5e-6)
    assert Link(0, math.inf).seconds(4000) == 0


@pytest.mark.parametrize("text", ["8xA100 x 8", "8xa100x8", " 8 x A100 x 8 "])
def test_a_cluster_reads_devices_per_node_times_nodes(text):
    made = cluster(text)
    assert (made.per_node, made.nodes, made.device.name) == (8, 8, "A100 SXM 80GB")


def test_ranks_fill_nodes_in_order_and_cross_them_by_the_slower_link():
    made = cluster("8xA100 x 2")
    assert made.link(0, 7) is LINKS["NVLink3"]
    assert made.link(7, 8) is LINKS["HDR"]


def test_a_cluster_without_a_number_of_nodes_grows_with_the_ranks():
    cluster("4xV100").check_ranks(64)
    with pytest.raises(ValueError, match="65 ranks need 65 devices.*at least 9 nodes"):
        cluster("8xA100 x 8").check_ranks(65)


def test_a_link_alone_joins_every_pair_alike():
    made = cluster(Link(1e-6, 1e9))
    assert made == Cluster.uniform(Link(1e-6, 1e9))
    assert made.link(0, 1) == made.link(0, 63) == Link(1e-6, 1e9)


@pytest.mark.parametrize("bad", ["A100", "8xA100 x", "0xA100", "8xA100 x 0", "", 8, None])
def test_a_description_that_cannot_be_read_says_how_to_write_one(bad):
    with pytest.raises(ValueError, match="8xA100|at least one"):
        cluster(bad)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match="'B9000'.*A100.*H100"):
        cluster("8xB9000")
    with pytest.raises(ValueError, match="'carrier pigeon'.*NVLink3"):
        link("carrier pigeon")
    with pytest.raises(ValueError, match="'int4'.*V100.*float32"):
        device("V100").rate("int4")


@pytest.mark.parametrize(
    ("latency", "bandwidth"), [(-1e-6, 1e9), (1e-6, 0), (math.nan, 1e9), (math.inf, 1e9), (0, True)]
)
def test_a_link_with_impossible_figures_is_refused(latency, bandwidth):
    with pytest.raises(ValueError, match="link's"):
        Link(latency, bandwidth)


@pytest.mark.parametrize(("per_node", "nodes"), [(0, None), (8, 0), (-1, 2), (2.5, 1)])
def test_a_cluster_without_devices_or_nodes_is_refused(per_node, nodes):
    with pytest.raises(ValueError, match="cluster's (devices per node|nodes) must be .* at least one"):
        Cluster(device("T4"), per_node, link("PCIe3"), link("10GbE"), nodes)


def test_a_device_with_impossible_figures_is_refused():
    with pytest.raises(ValueError, match="float32 FLOP rate of toy"):
        Device("toy", {"float32": 0.0}, 1e9, 1, "none")
