"""Manifests that tests read, written for them: one of each kind."""

from __future__ import annotations

TRAINING_JOB = """\
apiVersion: sterna.dev/v1alpha1
kind: TrainingJob
metadata: {name: mnist}
spec:
  command: [python, train.py, --lr, 0.1]
  workers: 1:4
  resizing: restart
  resources: {cpu: 500m, memory: 2Gi, gpu: 0.5}
  progress: {stdout: 'step (?P<step>\\d+) loss (?P<loss>\\S+)', total: 1000}
  grace: 2m
"""

TF_JOB = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata:
  name: digits
spec:
  max-instances: 4
  min-instances: 1
  cleanPodPolicy: "All"
  tfReplicaSpecs:
    PS:
      replicas: 1
      restartPolicy: OnFailure
      template: &pod
        metadata:
          annotations: {"kubeshare/gpu_request": "0.2505"}
        spec:
          terminationGracePeriodSeconds: 7
          containers:
          - name: tensorflow
            image: registry.example/tf:1
            command: ["python", "ps.py"]
            ports: [{containerPort: 2222, name: tfjob-port}]
            resources: {limits: {cpu: "2", memory: "1Gi"}}
    worker:
      replicas: 3
      restartPolicy: ExitCode
      template: *pod
"""

MPI_JOB = """\
apiVersion: kubeflow.org/v1
kind: MPIJob
metadata: {name: keras}
spec:
  slotsPerWorker: 1
  mpiReplicaSpecs:
    Launcher:
      restartPolicy: OnFailure
      template:
        spec:
          containers:
          - name: launcher
            image: registry.example/horovod:1
            env:
            - {name: NP, value: "2"}
            - {name: MIN_NP, value: "1"}
            - {name: MAX_NP, value: "4"}
            - {name: EPOCHS, value: "5"}
            - {name: JOB_PRIORITY, value: "1"}
            command: ["bash", "-c"]
            args: ["run -np $(MIN_NP) --name $(JOB_NAME) --epochs $(EPOCHS) --cost $$5 $(NOPE) --metrics-dir /metrics"]
    Worker:
      replicas: 1
      template:
        spec:
          nodeSelector: {vodascheduler/accelerator: a100}
          containers:
          - name: worker
            image: registry.example/horovod:1
            resources: {limits: {nvidia.com/gpu: 1}}
"""

PYTORCH_JOB = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: elastic}
spec:
  runPolicy: {backoffLimit: 3, ttlSecondsAfterFinished: 60, activeDeadlineSeconds: 3600}
  elasticPolicy: {minReplicas: 1, maxReplicas: 3, rdzvBackend: c10d}
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          containers:
          - name: pytorch
            image: registry.example/torch:1
            command: [torchrun, train.py]
            resources: {requests: {cpu: 500m}, limits: {cpu: 2, nvidia.com/gpu: 1}}
"""

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: rnn}
spec:
  restartPolicy: Never
  containers:
  - name: rnn
    image: registry.example/rnn:1
    command: ["python"]
    args: ["app.py", "/data/rnn.csv", "rnn"]
    env:
    - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: NODE_IP, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
    volumeMounts: [{name: logs, mountPath: /data}]
  volumes: [{name: logs, persistentVolumeClaim: {claimName: logs}}]
"""

VOLUME = """\
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: logs}
spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 2Gi}}}
"""

SERVING = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: serving}
spec:
  template:
    metadata: {annotations: {SERVING_POD: "true"}}
    spec: {containers: [{name: model, image: registry.example/serving:1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: serving-once, annotations: {SERVING_POD: "true"}}
spec: {containers: [{name: model, image: registry.example/serving:1}]}
"""
