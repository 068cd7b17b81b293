#!/bin/bash
# First process of the pods that Spark starts on Kubernetes: `driver` with the arguments of spark-submit, or `executor`
# with all that it needs in the environment. Anything else is a command. tini passes signals on.
set -euo pipefail

case ${1:-} in
  driver)
    set -- "$SPARK_HOME/bin/spark-submit" --deploy-mode client \
      --conf "spark.driver.bindAddress=${SPARK_DRIVER_BIND_ADDRESS:?is set by Spark in the pod of a driver}" "${@:2}"
    ;;
  executor)
    options=()
    # SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, ...: an option of the JVM each.
    for ((number = 0; ; number++)); do
      option=SPARK_JAVA_OPT_$number
      [ -n "${!option+set}" ] || break
      options+=("${!option}")
    done
    # What spark.executor.extraClassPath names comes first, as everywhere in Spark.
    class_path=${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}${HADOOP_CONF_DIR:+$HADOOP_CONF_DIR:}
    class_path+=${SPARK_CONF_DIR:-$SPARK_HOME/conf}:$SPARK_HOME/jars/*:$PWD
    set -- java "${options[@]}" \
      "-Xms${SPARK_EXECUTOR_MEMORY:?is set by Spark in the pod of an executor}" "-Xmx$SPARK_EXECUTOR_MEMORY" \
      -cp "$class_path" \
      org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
      --driver-url "$SPARK_DRIVER_URL" \
      --executor-id "$SPARK_EXECUTOR_ID" \
      --cores "$SPARK_EXECUTOR_CORES" \
      --app-id "$SPARK_APPLICATION_ID" \
      --hostname "$SPARK_EXECUTOR_POD_IP" \
      --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
      --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
esac
exec tini -e 143 -- "$@"
