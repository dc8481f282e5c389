"""Speed and memory of the engine, beside its alternatives.

These are XLA's own matrix product and the libraries that people use now. The command is ``python -m experiments bench``.

Everything is measured in one run, because only ratios taken side by side mean much. Every measurement has a process of its own, on
one CPU core and one thread (on an accelerator: not pinned), so that no library profits from what another has loaded. A peer's
figure at ``T`` rounds comes from playing all ``T`` rounds of one trial; what it needs for more trials is that many times as much.

The file of ``--json`` is one object. Its keys:

- ``points_per_axis``, ``points``, ``counts`` and ``trials`` (numbers of trials, and the largest), ``horizon``, ``short_horizon``,
  ``repeats``, ``turns``, ``plays``: what was run, on ``sine``; ``rank`` of every form and ``dtype``.
- ``us``: microseconds per trial-round of ``gemm`` and of every form, by number of trials; ``gemm_us``, ``feature_us``, ``product_us``,
  ``rows_us`` are those of the largest number; ``feature_over_gemm``, ``product_over_gemm``, ``rows_over_gemm``; ``rows_matern_us``;
  ``rows_trials``: the most trials of ``rows``, which runs them one by one; ``ranged_us`` of a model of `ranged` with several
  length-scales from ``ranged_low`` to ``ranged_high``, ``ranged_rank``, and ``ranged_over_product``, the product form at the middle
  beside it (at most 2.5);
  ``own_us``: of the feature forms at both horizons, which peers are compared with.
- ``compile_s`` (features), ``compile_seconds`` (every form), ``peak_rss_mb`` of the process that ran them, ``violation`` of the points
  they chose.
- ``devices``: microseconds on ``"1"`` and ``"2"`` devices; ``two_device_speedup``, ``two_device_speedup_product``.
- ``peers``: of every peer ``us`` by number of rounds, ``violation`` and ``version``, or a ``note``; and, with the number of rounds at
  the end, ``PEER_us_T*`` and ``PEER_over_{feature,dense,product}_T*``.
- ``study``: studies of RPOL-UCB on all cores: ``points``, ``values`` of a sweep, ``trials``, ``many``, ``horizon``, ``repeats``,
  ``memory_gib`` (the budget given), ``devices``, ``cells`` and ``lines`` of the sweep; ``us`` per trial-round of a ``single`` value, of
  the ``sweep``, of a sweep of as many values of the model's noise variance (``model_sweep``) and of ``many`` trials, with
  ``sweep_over_single``, ``model_sweep_over_sweep`` (at most ``model_sweep_limit``, 1.1) and ``many_over_few``; ``batches`` and
  ``parts``: what progress and checkpoints cost the run of ``many`` trials, and one of ``few`` trials and ``long`` rounds: seconds in
  one piece without (``whole_s``) and as it is by default (``kept_s``), their ``ratio``, and in how many ``batches`` and ``parts``;
  ``peak_rss_mb``.
- ``accuracy``: beliefs after ``horizon`` rounds on ``points`` points beside a dense float64 solve; ``levels``: by noise variance the
  ``precision`` in force, rounds between two refreshes of the variance (``refresh``, 0 for none), ``rank``, the largest error of a mean in
  posterior deviations (``mean_error``) and of a deviation relative to itself (``sd_error``), and microseconds per update of one trial
  (``update_us``).
- ``late``: RPOL under Poisson delays of mean ``mean_delay``, with at most ``slots`` pending points: ``policies``, with ``us`` per
  trial-round, its ratio to the time without delay (``over_none``: at most 2 of ``censor`` and ``hallucinate``, 2.5 of ``wait``), and
  the same ratio of the multiply-adds of the posterior alone (``work_over_none``).
- ``boxes``: a continuous box (Hartmann-6), ``trials`` side by side for ``horizon`` rounds: ``us`` per trial-round of constrained EI with
  ``fixed`` kernels and with ``fitted`` ones, and of ``scbo`` with fitted ones, which is not in the quick benchmark; and of BoTorch, whose
  kernels are fitted in each round, in ``rival_trials`` trials of ``rival_horizon`` rounds: ``botorch_fitted`` (constrained log-EI) and
  ``botorch_scbo``; ``best``, medians over trials of the best feasible value after as many rounds, null where half of them have none;
  ``botorch_over_fitted`` (at least 150) and ``botorch_over_scbo``, with its ``version``, or a ``note`` where it is not installed.
- ``data_rate``: Algorithm 3 in the experiment ``data-rate``, by rows on one core: ``us`` per trial-round, ``build_s``, ``compile_s``,
  ``peak_rss_mb``, ``points`` and ``rank``.
- ``session``: a session of ``tickets`` questions and answers, each on the disk before it returns: milliseconds of both together
  (``ask_tell_ms``, the median; ``ask_tell_worst_ms``; ``ask_tell_cpu_ms``, the mean of CPU time), ``open_s`` to open it again with all
  ``events``; ``optuna_ms``: the same of Optuna's TPE in memory; ``ax_ms`` and ``ax_cpu_ms``: of Ax in memory, the median of
  ``ax_trials`` trials that its model proposes. What is not installed (``pip install "jaxbandit[rivals]"``) is null.
- ``tuning``: ``gradients`` of RPOL with 4 hyper-parameters, and of ``wide_keys`` with 16 not in the usual benchmark, by name:
  ``parameters``, ``trials`` of a gradient, ``keys`` (number of gradients), mean ``cosine`` to the mean of all others (at least 0.98), and
  ``coverage``, the share of 95% intervals that hold it; ``gradient_over_plain``, time of value and gradient of ``gradient_trials`` trials
  beside these trials alone, and ``gradient_mb``, its working memory by number of rounds; ``fit_many_s``: seconds of ``fits`` fits to
  ``fit_points`` points, by ``precisions``, none in the usual benchmark; ``evidence_us``: microseconds of a log evidence and its gradient,
  ``ranged_round_us`` and ``refitted_round_us``: microseconds per trial-round on a ranged model without and with fits, where ``refits``
  are timed, which is not in the usual benchmark.
- ``cluster``: workers of Dask, on this machine or where ``dask`` says: ``workers``, how many there are; ``tasks`` without work:
  ``tasks_a_second``, ``task_ms`` and by how much they made the memory of the process that hands them out grow (``grown_mb``); and a
  study of ``trials``: seconds by workers (``workers_s``) and by one process on all cores (``here_s``), programs being compiled, and their
  ratio ``workers_over_here`` (at most 1.1 with a worker for each core). A ``note`` where Dask is not installed.
- ``backend``, ``device``, ``cpu_model``, ``cores``, ``pinned``, ``versions``, ``date``, ``seconds`` of the whole run.
"""
